"""The area "Reassignments": replicas that move between brokers, limits of copying, and elections of leaders."""

from __future__ import annotations

from ...area import Action, Area, View
from . import elections, ending, moving, page

AREA = Area(
    name="reassignments",
    title="Reassignments",
    place=25,
    parts=(
        View(path="/reassignments", show=page.show, refresh_s=3.0),
        Action(path="/reassignments/topic", form=moving.topic_form, plan=moving.plan_topic),
        Action(path="/reassignments/partitions", form=moving.partitions_form, plan=moving.plan_partitions),
        Action(path="/reassignments/broker", form=moving.broker_form, plan=moving.plan_broker),
        Action(path="/reassignments/cancel", form=ending.cancelling_form, plan=ending.plan_cancelling),
        Action(path="/reassignments/unthrottle", form=ending.lifting_form, plan=ending.plan_lifting),
        Action(path="/reassignments/elect", form=elections.preferred_form, plan=elections.plan_preferred),
        Action(path="/reassignments/unclean", form=elections.unclean_form, plan=elections.plan_unclean),
    ),
    probe=lambda admin: admin.list_partition_reassignments(),
)

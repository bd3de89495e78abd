"""The area "Topics": the list of topics, the page of a topic with its partitions and settings, and changes of
topics."""

from __future__ import annotations

from ...area import Action, Area, View
from . import changes, listing, topic

AREA = Area(
    name="topics",
    title="Topics",
    place=20,
    parts=(
        View(path="/topics", show=listing.show, refresh_s=4.0),
        View(path="/topics/topic", show=topic.show, refresh_s=3.0),
        Action(
            path="/topics/create",
            form=changes.creation_form,
            plan=changes.plan_creation,
        ),
        Action(
            path="/topics/alter",
            form=changes.settings_form,
            plan=changes.plan_settings,
        ),
        Action(
            path="/topics/partitions",
            form=changes.partitions_form,
            plan=changes.plan_partitions,
        ),
        Action(path="/topics/trim", form=changes.trim_form, plan=changes.plan_trim),
        Action(
            path="/topics/delete",
            form=changes.deletion_form,
            plan=changes.plan_deletion,
        ),
    ),
)

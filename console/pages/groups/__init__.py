"""The area "Groups": members and lag of groups, classic, consumer and share, and changes of their offsets."""

from __future__ import annotations

from ...area import Action, Area, View
from . import changes, group, listing

AREA = Area(
    name="groups",
    title="Groups",
    place=40,
    parts=(
        View(path="/groups", show=listing.show, refresh_s=4.0),
        View(path="/groups/group", show=group.show, refresh_s=3.0),
        Action(path="/groups/seek", form=changes.seek_form, plan=changes.plan_seek),
        Action(
            path="/groups/delete",
            form=changes.deletion_form,
            plan=changes.plan_deletion,
        ),
    ),
)

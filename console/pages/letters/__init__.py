"""The area "Letters": the dead letters of a topic with the reasons, and a form that sends letters back."""

from __future__ import annotations

from ...area import Action, Area, View
from . import page, replaying

AREA = Area(
    name="letters",
    title="Letters",
    place=35,
    parts=(
        View(path="/letters", show=page.show),
        Action(path="/letters/replay", form=replaying.replay_form, plan=replaying.plan_replay),
    ),
)

"""The area "Messages": a topic's records by offset, by time or live, filtered on the server, and a form that sends a
record."""

from __future__ import annotations

from ...area import Action, Area, View
from . import page, sending

AREA = Area(
    name="messages",
    title="Messages",
    place=30,
    parts=(
        View(path="/messages", show=page.show),
        View(path="/messages/live", show=page.show_live, refresh_s=2.0),
        View(path="/messages/whole", show=page.show_whole),
        Action(path="/messages/send", form=sending.send_form, plan=sending.plan_sending),
    ),
)

"""The area "Overview": the health of the cluster, its traffic per second, and its events."""

from __future__ import annotations

from ...area import Area, View
from . import events, page, partitions

AREA = Area(
    name="overview",
    title="Overview",
    place=10,
    parts=(
        View(path="/overview", show=page.show, refresh_s=2.0),
        View(path="/overview/partitions", show=partitions.show, refresh_s=2.0),
        View(path="/overview/events", show=events.show, refresh_s=2.0),
    ),
)

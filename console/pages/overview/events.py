"""The page of events: all events of the cluster that the console remembers."""

from __future__ import annotations

from dataclasses import dataclass

from ...area import Paged, Rendered, Visit
from ...bounds import EVENTS_MAX
from ...live.event_lines import EventLine, event_lines


@dataclass(frozen=True, slots=True)
class EventsPage:
    """The data that the template of the page "Events" shows; `events_max` events are remembered."""

    paged: Paged[EventLine]
    events_max: int


async def show(visit: Visit) -> Rendered:
    """Return the page of the remembered events, the newest first."""
    await visit.sampler.snapshot()
    model = EventsPage(visit.paged(event_lines(visit.sampler.events)), EVENTS_MAX)
    return Rendered("Events", "events.html", model)

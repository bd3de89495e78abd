"""Lines of the timeline: the events of one cause, folded into one line. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from .events import BAD, Cause, Event, partitions_text

FOLD_S: Final = 60.0
"""Seconds since the newest event of a line within which further events of its cause belong to the line."""


@dataclass(frozen=True, slots=True)
class EventLine:
    """The events of one cause, in order of time."""

    events: Sequence[Event]

    @property
    def key(self) -> str:
        """An HTML id that stays while events are added to the line."""
        cause = self.events[0].cause
        return f"event-{self.at_s:.3f}-{cause.subject}-{cause.change}".replace(" ", "-")

    @property
    def at_s(self) -> float:
        """The time of the first event, in seconds since 1970."""
        return self.events[0].at_s

    @property
    def kind(self) -> str:
        """The kind of the line: BAD if any event is bad, otherwise the kind of the first event."""
        return BAD if any(event.kind == BAD for event in self.events) else self.events[0].kind

    @property
    def text(self) -> str:
        """The cause, and the sum of each effect on partitions."""
        if len(self.events) == 1:
            return self.events[0].text
        sums: Counter[str] = Counter()
        for event in self.events:
            if event.effect:
                sums[event.effect] += event.partitions
        (first, number), *others = sums.items()
        effects = [
            f"{partitions_text(number)} {first}",
            *(f"{number:,} {effect}" for effect, number in others),
        ]
        cause = next((event.text for event in self.events if not event.effect), self.events[0].cause.subject)
        return f"{cause}: {', '.join(effects)}"


def event_lines(events: Iterable[Event]) -> list[EventLine]:
    """Fold events, which are in order of time, into lines. The line that began last comes first."""
    lines: list[list[Event]] = []
    newest: dict[Cause, list[Event]] = {}
    for event in events:
        line = newest.get(event.cause)
        if line is None or not _belongs(event, line):
            line = newest[event.cause] = []
            lines.append(line)
        line.append(event)
    return [EventLine(tuple(line)) for line in reversed(lines)]


def _belongs(event: Event, line: Sequence[Event]) -> bool:
    """Return whether an event belongs to a line of the same cause.

    Each departure of a broker has a line of its own. Effects may be seen before their cause.
    """
    if event.at_s - line[-1].at_s > FOLD_S:
        return False
    return bool(event.effect) or all(other.effect for other in line)

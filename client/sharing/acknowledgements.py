"""Acknowledgements that a member has to send to one leader, until each of them is answered. Pure.

    state     becomes    when
    waiting   sent       a request takes it
    sent      answered   the leader accepted it
    sent      waiting    the leader failed for the moment, and the lock may still hold
    sent      suspect    the broker refused several acknowledgements together: a single one without a lock suffices,
                         and its answer does not name that acknowledgement
    suspect   sent       with half of the others, until the acknowledgement without a lock is found

An acknowledgement that is refused alone has lost its lock.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from math import ceil
from typing import Final, NamedTuple

from ...protocol.errors import ErrorCode
from .places import Place

LOST: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FENCED_STATE_EPOCH,
    }
)
"""Errors of a broker that has none of this member's locks in a partition: locks end with their leader."""
NOT_HELD: Final = frozenset({ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST})
"""Errors of a broker for a record that the member has not locked. Apache Kafka answers INVALID_REQUEST for offsets that
it has not given out at all, as after a change of the group's offsets."""
MOMENTARY: Final = frozenset(
    {ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT}
)
"""Errors of a broker that could not store an acknowledgement, beside the retriable ones: the lock still holds."""


DELAY_MAX: Final = timedelta(days=7)
"""The longest delay of a released record."""


def delay_ms(delay: float | timedelta) -> int:
    """Return a delay, in seconds or as a timedelta, in ms. Raises TypeError and ValueError."""
    if isinstance(delay, bool) or not isinstance(delay, int | float | timedelta):
        raise TypeError(f"delay is a number of seconds, or a timedelta, not {delay!r}")
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
    most = DELAY_MAX.total_seconds()
    if not 0 <= seconds <= most:
        raise ValueError(f"delay is 0 to {most:.0f} seconds ({DELAY_MAX.days} days), not {delay!r}")
    return ceil(seconds * 1000)


class AcknowledgementRange(NamedTuple):
    """Offsets with one type of acknowledgement, an AcknowledgeType."""

    first: int
    last: int
    type: int
    delay_ms: int = 0
    """Time for which nobody gets the released records."""


@dataclass(slots=True)
class Answered:
    """The acknowledgements of one partition whose outcome a leader's answer decides, by their first offsets."""

    done: list[int] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    """Acknowledgements of records that this member has not locked any more."""
    refused: list[int] = field(default_factory=list)
    """Acknowledgements that the leader refuses for good for another reason."""
    again: bool = False
    """True if acknowledgements have to be sent again after a pause."""


_Ranges = dict[int, AcknowledgementRange]


class AcknowledgementQueue:
    """The acknowledgements for one leader, by partition. One request at a time: `take`, then `answered` for each
    partition of the request, or `clear`."""

    def __init__(self) -> None:
        self._waiting: dict[Place, _Ranges] = {}
        self._suspects: dict[Place, list[_Ranges]] = {}
        self._sent: dict[Place, _Ranges] = {}

    def __bool__(self) -> bool:
        """Return whether a request has something to take."""
        return bool(self._waiting or self._suspects)

    @property
    def has_suspects(self) -> bool:
        """True if a refused acknowledgement is to be found among several."""
        return bool(self._suspects)

    @property
    def is_empty(self) -> bool:
        """True if every acknowledgement was answered."""
        return not (self._waiting or self._suspects or self._sent)

    @property
    def sent(self) -> list[Place]:
        """The partitions of the request that is not answered yet."""
        return list(self._sent)

    def add(self, place: Place, first: int, last: int, kind: int, delay_ms: int = 0) -> None:
        """Add an acknowledgement of one type for the offsets from `first` to `last`."""
        self._waiting.setdefault(place, {})[first] = AcknowledgementRange(first, last, kind, delay_ms)

    def discard(self, place: Place, first: int) -> None:
        """Drop the acknowledgement that begins at `first`, if it was not sent yet."""
        if (waiting := self._waiting.get(place)) is not None:
            waiting.pop(first, None)
            if not waiting:
                del self._waiting[place]

    def take(self) -> dict[Place, list[AcknowledgementRange]]:
        """Return the acknowledgements of the next request, and note them as sent: ranges in order, neighbours of one
        type joined. A partition with suspects has a part of these alone."""
        for place in [*self._waiting, *(place for place in self._suspects if place not in self._waiting)]:
            if (parts := self._suspects.get(place)) is None:
                self._sent[place] = self._waiting.pop(place)
                continue
            self._sent[place] = parts.pop()
            if not parts:
                del self._suspects[place]
        return {place: list(joined(ranges)) for place, ranges in self._sent.items()}

    def answered(self, place: Place, code: ErrorCode) -> Answered:
        """Note the answer to the acknowledgements of one partition, and return the decided ones."""
        sent = self._sent.pop(place, {})
        if code is ErrorCode.NONE:
            return Answered(done=list(sent))
        if code in NOT_HELD and len(sent) > 1:
            self._split(place, sent)
            return Answered()
        if code in NOT_HELD or code in LOST:
            return Answered(lost=list(sent))
        if code.retriable or code in MOMENTARY:
            self._waiting[place] = sent | self._waiting.get(place, {})
            return Answered(again=bool(sent))
        return Answered(refused=list(sent))

    def clear(self) -> None:
        """Drop all acknowledgements, as their locks ended with the session."""
        self._waiting.clear()
        self._suspects.clear()
        self._sent.clear()

    def _split(self, place: Place, sent: _Ranges) -> None:
        offsets = sorted(sent)
        middle = len(offsets) // 2
        halves = [{first: sent[first] for first in half} for half in (offsets[middle:], offsets[:middle])]
        self._suspects.setdefault(place, []).extend(halves)


def joined(ranges: Mapping[int, AcknowledgementRange]) -> Iterator[AcknowledgementRange]:
    """Yield ranges in order, by their first offsets, with neighbours of one type and delay joined."""
    current: AcknowledgementRange | None = None
    for first in sorted(ranges):
        following = ranges[first]
        if current is not None and current.last + 1 == first and current[2:] == following[2:]:
            current = current._replace(last=following.last)
            continue
        if current is not None:
            yield current
        current = following
    if current is not None:
        yield current

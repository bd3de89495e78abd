"""The choice of lanes for records that were read. Pure."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Protocol

from ..records import ConsumerRecord


class LaneChoice(Protocol):
    """A choice of lanes that cannot fail."""

    def lane_of(self, record: ConsumerRecord) -> Hashable:
        """Return the lane of a record; None for a lane of its own."""

    def lanes_of(self, records: Sequence[ConsumerRecord]) -> Sequence[Hashable]:
        """Return the lanes of records of one partition, as `lane_of` does."""


class BrokenLane:
    """A lane of its own for a record on which the function that chooses lanes failed."""

    __slots__ = ("error",)

    def __init__(self, error: Exception) -> None:
        self.error = error


class AskedLanes:
    """The lanes that a function of the program chooses. It may fail, and may return something that is no lane."""

    def __init__(self, function: Callable[[ConsumerRecord], Hashable]) -> None:
        self._function = function

    def lane_of(self, record: ConsumerRecord) -> Hashable:
        """Ask for the lane of a record."""
        try:
            lane = self._function(record)
            hash(lane)
        except Exception as error:
            return BrokenLane(error)
        return lane

    def lanes_of(self, records: Sequence[ConsumerRecord]) -> Sequence[Hashable]:
        """Ask for the lane of each record."""
        return [self.lane_of(record) for record in records]

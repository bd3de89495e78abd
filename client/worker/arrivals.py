"""Records that were read and have no tasks: they wait for their lanes, or are worked on in a series. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol

from ..records import ConsumerRecord

if TYPE_CHECKING:
    from .partition_tasks import PartitionTasks

HEADERS = attrgetter("headers")


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


class Arrivals:
    """Records of a partition that were read together, in the order of their offsets."""

    __slots__ = ("_choice", "_lanes", "at", "records", "sizes", "taken_s", "tasks")

    def __init__(
        self, tasks: PartitionTasks, records: Sequence[ConsumerRecord], choice: LaneChoice, now_s: float
    ) -> None:
        """`choice` chooses lanes once they are needed."""
        self.tasks = tasks
        """The tasks of their partition."""
        self.records = records
        self._choice = choice
        self._lanes: Sequence[Hashable] | None = None
        self.sizes = record_sizes(records)
        self.taken_s = now_s
        self.at = 0
        """The index of the first record that has no task and is not finished."""

    @property
    def lanes(self) -> Sequence[Hashable]:
        """The lane of each record; None for a lane of its own."""
        if self._lanes is None:
            self._lanes = self._choice.lanes_of(self.records)
        return self._lanes

    @property
    def next_lane(self) -> Hashable:
        """The lane of the record at `at`."""
        return self._choice.lane_of(self.records[self.at]) if self._lanes is None else self._lanes[self.at]

    @property
    def has_broken_lanes(self) -> bool:
        """True if the function that chooses lanes failed on some of the records."""
        return BrokenLane in set(map(type, self.lanes))

    @property
    def is_over(self) -> bool:
        """True once each record has a task or is finished."""
        return self.at == len(self.records)


class Series:
    """Records of a partition that are worked on in a row, as long as each handler ends without a wait.

    They need no tasks: nothing else starts, ends or is asked for meanwhile.
    """

    __slots__ = ("_held", "arrivals", "begin", "end")

    def __init__(self, arrivals: Arrivals, held: Collection[Hashable]) -> None:
        """`held`: the lanes in which no record may start."""
        self._held = held
        self.arrivals = arrivals
        self.begin = self.end = arrivals.at
        """The indices of the first record, and of the record after the last that was begun."""

    def __iter__(self) -> Iterator[Any]:
        """Begin one record after the other. They have the class with which they were offered."""
        held, records = self._held, self.arrivals.records
        lanes = self.arrivals.lanes if held else ()
        for at in range(self.begin, len(records)):
            if held and lanes[at] in held:
                return
            self.end = at + 1
            yield records[at]

    def __len__(self) -> int:
        """Return the number of records that were begun."""
        return self.end - self.begin


def record_sizes(records: Sequence[ConsumerRecord]) -> list[int]:
    """Return the size of each record's key, value and headers."""
    sizes = [len(record.key or b"") + len(record.value or b"") for record in records]
    if any(map(HEADERS, records)):
        for at, record in enumerate(records):
            sizes[at] += sum(len(key) + len(value or b"") for key, value in record.headers)
    return sizes

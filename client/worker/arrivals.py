"""Records that were read and have no tasks: they wait for their lanes, or are worked on in a series. Pure."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Sequence
from operator import attrgetter
from typing import Any

from ..records import ConsumerRecord
from .lane_choice import BrokenLane, LaneChoice
from .partition_tasks import PartitionTasks, Task

HEADERS = attrgetter("headers")


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
        if (
            self._lanes is None and self.at == 0
        ):  # Those behind the first may have a series, which needs no lanes.
            return self._choice.lane_of(self.records[0])
        return self.lanes[self.at]

    @property
    def has_broken_lanes(self) -> bool:
        """True if the function that chooses lanes failed on some of the records."""
        return BrokenLane in set(map(type, self.lanes))

    @property
    def is_over(self) -> bool:
        """True once each record has a task or is finished."""
        return self.at == len(self.records)

    def next_task(self) -> Task:
        """Return a task for the next record."""
        at = self.at
        task = Task(self.records[at], self.tasks, self.next_lane, self.sizes[at], self.taken_s)
        self.at += 1
        self.tasks.begin(task)
        return task


class RecordSeries:
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

    def finish(self) -> None:
        """Count the offsets of all records that were begun as finished."""
        records, begin, end = self.arrivals.records, self.begin, self.end
        self.arrivals.tasks.finish_all(
            records[begin].offset, records[end - 1].offset, self.arrivals.sizes[begin:end]
        )


def record_sizes(records: Sequence[ConsumerRecord]) -> list[int]:
    """Return the size of each record's key, value and headers."""
    sizes = [len(record.key or b"") + len(record.value or b"") for record in records]
    if any(map(HEADERS, records)):
        for at, record in enumerate(records):
            sizes[at] += sum(len(key) + len(value or b"") for key, value in record.headers)
    return sizes

"""The records that a consumer has handed out, each offset once, however often the program seeks back and reads it
again.

Pure. Records are taken from the fetch buffers many at a time, and some of them wait to be handed out one by one.
Records that the program never gets, since the consumer stops or loses the partition, do not count.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Container, Mapping, Sequence
from typing import NamedTuple

from ..auditing.counts import Stamped
from ..records import ConsumerRecord, TopicPartition


def stamped(records: Sequence[ConsumerRecord]) -> list[Stamped]:
    """Return the timestamp in ms, and the size of key and value in bytes, of each record, as an audit counts them."""
    return [(record.timestamp_ms, len(record.key or b"") + len(record.value or b"")) for record in records]


class OffsetRanges:
    """A set of offsets, as ranges."""

    def __init__(self) -> None:
        # Invariant: starts[0] < ends[0] < starts[1] < ends[1] < ...
        self._starts: list[int] = []
        self._ends: list[int] = []

    def __contains__(self, offset: int) -> bool:
        at = bisect_right(self._starts, offset) - 1
        return at >= 0 and offset < self._ends[at]

    def __len__(self) -> int:
        """Return the number of ranges."""
        return len(self._starts)

    def reaches_beyond(self, offset: int) -> bool:
        """Return whether the set may contain this offset or a later one."""
        return bool(self._ends) and self._ends[-1] > offset

    def add(self, start: int, end: int) -> None:
        """Add the offsets from `start` to before `end`, at least one."""
        low, high = bisect_left(self._ends, start), bisect_right(self._starts, end)
        if low < high:
            start, end = min(start, self._starts[low]), max(end, self._ends[high - 1])
        self._starts[low:high] = [start]
        self._ends[low:high] = [end]


class _Run(NamedTuple):
    """The records of one read, with all records that can be read between `start` and `end`."""

    partition: TopicPartition
    start: int
    end: int
    records: Sequence[ConsumerRecord]


class HandedOut:
    """A count of the records that a consumer has handed out to its program. `count` is called for each record once,
    after it was handed out."""

    def __init__(self, count: Callable[[str, list[Stamped]], None]) -> None:
        self._count = count
        self._taken: list[_Run] = []
        self._counted: dict[TopicPartition, OffsetRanges] = {}

    def taken(
        self, partition: TopicPartition, start: int, end: int, records: Sequence[ConsumerRecord]
    ) -> None:
        """Note a read from offset `start` to before `end`, whose records are handed out to the program, or wait for
        that."""
        if start >= end:
            return
        # A copy, since the program owns the list and may change it.
        self._taken.append(_Run(partition, start, end, list(records)))

    def settle(self, unread: Mapping[TopicPartition, int]) -> None:
        """Count the records of all reads noted so far as handed out, except waiting records: in each partition of
        `unread`, from that offset on."""
        taken, self._taken = self._taken, []
        for run in taken:
            seen = min(max(unread.get(run.partition, run.end), run.start), run.end)
            if seen == run.end:
                self._settle(run)
                continue
            if seen > run.start:
                self._settle(
                    run._replace(end=seen, records=[record for record in run.records if record.offset < seen])
                )
            left = [record for record in run.records if record.offset >= seen]
            self._taken.append(run._replace(start=seen, records=left))

    def keep(self, partitions: Container[TopicPartition]) -> None:
        """Forget waiting records of other partitions: they will not be handed out."""
        self._taken = [run for run in self._taken if run.partition in partitions]

    def drop(self, partitions: Container[TopicPartition]) -> None:
        """Forget waiting records of these partitions: they will not be handed out."""
        self._taken = [run for run in self._taken if run.partition not in partitions]

    def given(
        self,
        partition: TopicPartition,
        start: int,
        end: int,
        offsets: Sequence[int],
        records: Sequence[Stamped],
    ) -> None:
        """Count the records of a read from offset `start` to before `end`, which the program got."""
        if start >= end:
            return
        counted = self._counted.setdefault(partition, OffsetRanges())
        if counted.reaches_beyond(start):
            records = [
                record for offset, record in zip(offsets, records, strict=True) if offset not in counted
            ]
        counted.add(start, end)
        if records:
            self._count(partition.topic, list(records))

    def _settle(self, run: _Run) -> None:
        offsets = [record.offset for record in run.records]
        self.given(run.partition, run.start, run.end, offsets, stamped(run.records))

"""The acquired records in one partition's answer to a ShareFetch. Pure.

An answer has whole batches, which may contain more records than the member acquired, and the acquired ranges of
offsets. A range may have offsets without a record: those of transaction markers, and those that compaction removed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.share_fetch import AcquiredRecords
from ...protocol.records.record_batch import BatchHeader, check_integrity, walk_batches
from ..consuming.fetched import consumer_records, unreadable
from ..failures import UnreadableRecords
from ..records import ConsumerRecord, TopicPartition

WAY_ON: Final = "the share group delivers it again, up to its limit of deliveries"


class AcquiredRecord(NamedTuple):
    """A record that the member has acquired, and the number of its deliveries, with this delivery."""

    record: ConsumerRecord
    delivery_count: int


class AcquiredDamage(NamedTuple):
    """Acquired offsets that cannot be read, and the reason."""

    first: int
    last: int
    delivery_count: int
    error: UnreadableRecords


@dataclass(slots=True)
class AcquiredOffsets:
    """The acquired offsets of an answer: records, damaged offsets, and gaps (first and last offsets without records).
    Each list is in the order of offsets."""

    records: list[AcquiredRecord] = field(default_factory=list)
    damages: list[AcquiredDamage] = field(default_factory=list)
    gaps: list[tuple[int, int]] = field(default_factory=list)


class _Reading:
    """The state while the batches of one answer are read."""

    def __init__(self, partition: TopicPartition, ranges: Sequence[AcquiredRecords]) -> None:
        self.partition = partition
        self.ranges = sorted(ranges, key=lambda acquired: acquired.first_offset)
        self.firsts = [acquired.first_offset for acquired in self.ranges]
        self.found = AcquiredOffsets()
        self.position = self.firsts[0] if self.firsts else 0
        """The first offset that is not decided yet."""

    def overlapping(self, first: int, last: int) -> list[AcquiredRecords]:
        """Return the acquired ranges with offsets from `first` to `last`."""
        begin = max(0, bisect_right(self.firsts, first) - 1)
        end = bisect_right(self.firsts, last)
        return [acquired for acquired in self.ranges[begin:end] if acquired.last_offset >= first]

    def pass_gap(self, behind: int) -> None:
        """Note that the acquired offsets up to before `behind` have no records."""
        if behind > self.position:
            for acquired in self.overlapping(self.position, behind - 1):
                first = max(acquired.first_offset, self.position)
                self.found.gaps.append((first, min(acquired.last_offset, behind - 1)))
            self.position = behind

    def take(self, rows: Iterable[ConsumerRecord], behind: int) -> None:
        """Note the records of a batch that ends before `behind`."""
        ranges = iter(self.overlapping(self.position, behind - 1))
        current = next(ranges, None)
        for row in rows:
            while current is not None and current.last_offset < row.offset:
                current = next(ranges, None)
            if current is None:
                break
            if current.first_offset <= row.offset:
                self.pass_gap(row.offset)
                self.found.records.append(AcquiredRecord(row, current.delivery_count))
                self.position = row.offset + 1
        self.pass_gap(behind)

    def damage(self, behind: int, error: UnreadableRecords) -> None:
        """Note that the acquired offsets up to before `behind` cannot be read."""
        for acquired in self.overlapping(self.position, behind - 1):
            first, last = max(acquired.first_offset, self.position), min(acquired.last_offset, behind - 1)
            self.found.damages.append(AcquiredDamage(first, last, acquired.delivery_count, error))
        self.position = max(self.position, behind)


def acquired_records(
    partition: TopicPartition,
    batches: memoryview,
    ranges: Sequence[AcquiredRecords],
    *,
    check_crcs: bool = True,
) -> AcquiredOffsets:
    """Return the acquired offsets of an answer, whose bytes are `batches`. It raises nothing: damage is a part of the
    result."""
    reading = _Reading(partition, ranges)
    if not ranges:
        return reading.found
    reason = KafkaError(ErrorCode.CORRUPT_MESSAGE, "the answer has no whole batch with it")
    try:
        for place, header in walk_batches(batches, partial_tail=True):
            if header.next_offset > reading.position:
                _read_batch(reading, batches, place, header, check_crcs=check_crcs)
    except KafkaError as error:
        reason = error
    end = max(acquired.last_offset for acquired in ranges) + 1
    if end > reading.position:
        reading.damage(end, UnreadableRecords(reason, partition, reading.position, end, way_on=WAY_ON))
    return reading.found


def _read_batch(
    reading: _Reading, batches: memoryview, place: int, header: BatchHeader, *, check_crcs: bool
) -> None:
    if not reading.overlapping(header.base_offset, header.last_offset):
        return
    reading.pass_gap(header.base_offset)
    rows: list[ConsumerRecord] = []
    try:
        if check_crcs:
            check_integrity(batches, place, header)
        if not header.is_control:
            batch = batches[place : place + header.size]
            cursor = consumer_records(reading.partition, header, batch, reading.position)
            rows = cursor.take(header.record_count)
    except KafkaError as error:
        reading.damage(header.next_offset, unreadable(reading.partition, error, header, WAY_ON))
    else:
        reading.take(rows, header.next_offset)

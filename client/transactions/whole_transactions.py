"""Batches of several partitions put together to whole transactions, in the order in which they were decided. Pure.

The markers of a partition stand in the order of their commit indexes. So whoever has read partitions up to markers with
index j has all transactions below the lowest of these j: they are complete, and nothing older is to come. At a cut X a
partition has been read far enough for all of X once its cut offset is reached: no marker above X lies before it, and
every marker up to X does. What open transactions have written waits, as bytes, for its marker; it holds up nobody else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.records.record import NO_COMMIT_INDEX, ControlType, read_control_record
from ...protocol.records.record_batch import BatchHeader
from ..consuming.fetched import consumer_records, unreadable
from ..large_messages.assembly import Assembly
from ..records import ConsumerRecord, TopicPartition

NOTHING = -1
"""Below every commit index."""


_LEFT_OUT = "transactions(passing_over=[error]) leaves it out"
_NO_OUTCOME = "whether its transaction counts is not known; read single records to go on behind it"
NewAssembly = Callable[[], Assembly | None]
"""Makes what puts large messages together; None where segments are to be told of as they are."""


class CommittedTransaction(NamedTuple):
    """The records of one transaction, of all its writers, in the partitions that are read. With `commit_index` None:
    records that were written outside of transactions. Without any records: everything up to this commit index has been
    told, which is for readers who ask for `cuts`.
    """

    commit_index: int | None
    records: dict[TopicPartition, list[ConsumerRecord]]


class _Stored(NamedTuple):
    header: BatchHeader
    batch: bytes


@dataclass(slots=True)
class _Partition:
    first_offset: int
    """What lies before is not told of."""
    plain_from: int
    """Nor are records before this that are in no transaction."""
    position: int
    cut_offset: int = -1
    progress: int = NOTHING
    """All markers up to this index have been read."""
    open: defaultdict[int, list[_Stored]] = field(default_factory=lambda: defaultdict(list))
    """Batches of transactions without a marker yet, by producer id."""


class Assembler:
    """For a fixed set of partitions. `add` what is read of `next_partition`, then take what is `ready`."""

    def __init__(
        self,
        starts: Mapping[TopicPartition, int],
        after: int,
        bytes_max: int,
        assembly: NewAssembly = lambda: None,
        passing_over: Collection[tuple[TopicPartition, int]] = (),
    ) -> None:
        """Of transactions up to commit index `after` nothing is told. At most `bytes_max` bytes of batches wait. The
        records of the batches at the offsets `passing_over` are left out."""
        self.cut = NOTHING
        self.waiting_bytes = 0
        self._after = after
        self._bytes_max = bytes_max
        self._new_assembly = assembly
        self._plain = assembly()
        self._passing_over = frozenset(passing_over)
        self._partitions = {one: _Partition(offset, offset, offset) for one, offset in starts.items()}
        self._decided: defaultdict[int, dict[TopicPartition, list[_Stored]]] = defaultdict(dict)

    def stop(self) -> None:
        """Nothing more is added."""
        if self._plain is not None:
            self._plain.keep(())

    def plain_from(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Leave records out that are in no transaction and lie before these offsets."""
        for one, offset in offsets.items():
            self._partitions[one].plain_from = max(self._partitions[one].plain_from, offset)

    def set_cut(self, cut: int, offsets: Mapping[TopicPartition, int]) -> None:
        """Read on up to this cut, and no further."""
        self.cut = max(cut, self.cut)
        for one, offset in offsets.items():
            partition = self._partitions[one]
            partition.cut_offset = max(offset, partition.cut_offset)
            self._look_whether_reached(partition)

    def unread(self) -> list[TopicPartition]:
        """The partitions that lack something of the cut, the one that is furthest behind first: so the least waits."""
        lacking = [one for one, state in self._partitions.items() if state.position < state.cut_offset]
        return sorted(lacking, key=lambda one: self._partitions[one].progress)

    def takes(self, one: TopicPartition, header: BatchHeader) -> bool:
        """Whether this batch, the next one of the partition, belongs to the cut."""
        partition = self._partitions[one]
        if header.base_offset < partition.cut_offset:
            return True
        partition.position = max(
            partition.position, partition.cut_offset
        )  # compaction has left a gap before it
        self._look_whether_reached(partition)
        return False

    def add(self, one: TopicPartition, header: BatchHeader, batch: memoryview) -> list[ConsumerRecord]:
        """Take one batch over. What is in no transaction comes back at once.

        Raises UnreadableRecords, and KafkaError: CORRUPT_MESSAGE for a marker that has no commit index, or
        RECORD_LIST_TOO_LARGE where more would wait than may.
        """
        partition = self._partitions[one]
        plain: list[ConsumerRecord] = []
        if header.is_control:
            self._end(one, partition, header, batch)
        elif header.is_transactional:
            self._store(one, partition, header, batch)
        else:
            start = max(partition.first_offset, partition.plain_from)
            plain = self._records(self._plain, one, header, batch, start)
        partition.position = header.next_offset
        self._look_whether_reached(partition)
        return plain

    def ready(self) -> Iterator[CommittedTransaction]:
        """The transactions that are complete now, oldest decision first. Raises UnreadableRecords."""
        progress = min((state.progress for state in self._partitions.values()), default=NOTHING)
        for index in sorted(index for index in self._decided if index <= progress):
            parts = self._decided.pop(index)
            records: dict[TopicPartition, list[ConsumerRecord]] = {}
            for one, batches in sorted(parts.items()):
                self.waiting_bytes -= sum(len(stored.batch) for stored in batches)
                found = self._decoded(one, batches)
                if found:
                    records[one] = found
            if records:
                yield CommittedTransaction(index, records)

    def _store(
        self, one: TopicPartition, partition: _Partition, header: BatchHeader, batch: memoryview
    ) -> None:
        self.waiting_bytes += len(batch)
        if self.waiting_bytes > self._bytes_max:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"transactions that are not complete hold more than {self._bytes_max} bytes, at "
                f"{one.topic}-{one.partition}, offset {header.base_offset}; a larger buffer_bytes_max reads on, or "
                "a consumer with isolation_level='read_committed'",
            )
        partition.open[header.producer_id].append(_Stored(header, bytes(batch)))

    def _end(
        self, one: TopicPartition, partition: _Partition, header: BatchHeader, batch: memoryview
    ) -> None:
        try:
            marker = read_control_record(batch)
        except KafkaError as error:
            raise unreadable(one, error, header, _NO_OUTCOME) from error
        written = partition.open.pop(header.producer_id, [])
        committed = marker is not None and marker.type is ControlType.COMMIT
        index = NO_COMMIT_INDEX if marker is None else marker.commit_index
        if committed and index == NO_COMMIT_INDEX and written:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE,
                f"{one.topic}-{one.partition}: the marker at offset {header.base_offset} has no commit index",
            )
        if committed and written and index > self._after:
            self._decided[index].setdefault(one, []).extend(written)
        else:
            self.waiting_bytes -= sum(len(stored.batch) for stored in written)
        # Others may follow with the same index, if the transaction has several writers.
        partition.progress = max(partition.progress, index - 1)

    def _look_whether_reached(self, partition: _Partition) -> None:
        if partition.position >= partition.cut_offset:
            partition.progress = max(partition.progress, self.cut)

    def _decoded(self, one: TopicPartition, batches: Iterable[_Stored]) -> list[ConsumerRecord]:
        first = self._partitions[one].first_offset
        ordered = sorted(batches, key=lambda stored: stored.header.base_offset)
        # A message lies in one transaction as a whole.
        assembly = self._new_assembly()
        found = [
            record
            for stored in ordered
            for record in self._records(assembly, one, stored.header, stored.batch, first)
        ]
        if assembly is not None:
            assembly.finish()
        return found

    def _records(
        self,
        assembly: Assembly | None,
        one: TopicPartition,
        header: BatchHeader,
        batch: memoryview | bytes,
        first_offset: int,
    ) -> list[ConsumerRecord]:
        if (one, header.base_offset) in self._passing_over:
            return []
        try:
            return _whole(assembly, one, _records(one, header, batch, first_offset))
        except KafkaError as error:
            raise unreadable(one, error, header, _LEFT_OUT) from error


def _whole(
    assembly: Assembly | None, one: TopicPartition, records: list[ConsumerRecord]
) -> list[ConsumerRecord]:
    """Large messages put together. Raises CORRUPT_MESSAGE."""
    if assembly is None:
        return records
    given, damage = assembly.take_in(one, records)
    if damage is not None:
        raise damage.error
    return given


def _records(
    one: TopicPartition, header: BatchHeader, batch: memoryview | bytes, first_offset: int
) -> list[ConsumerRecord]:
    cursor = consumer_records(one, header, batch, first_offset)
    records: list[ConsumerRecord] = []
    while some := cursor.take(header.record_count):  # Of a damaged batch the second portion is an error.
        records += some
    return records

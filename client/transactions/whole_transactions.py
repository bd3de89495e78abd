"""The assembly of batches of several partitions into whole transactions, in the order in which they were decided. Pure.

A partition's markers are in the order of their commit indexes. A reader has read each partition up to a marker with
some index j. Then all transactions below the lowest of these j are complete, and no older one will follow. At a cut X,
a partition has been read far enough for all of X once its cut offset is reached: every marker up to X is before that
offset, and no marker above X. Batches of open transactions wait, as bytes, for their marker; they delay no other
transaction.
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
from ..consuming.large_messages.assembly import Assembly
from ..records import ConsumerRecord, TopicPartition

NOTHING = -1
"""An index below every commit index."""


_LEFT_OUT = "transactions(passing_over=[error]) leaves it out"
_NO_OUTCOME = "whether its transaction counts is not known; read single records to go on behind it"
NewAssembly = Callable[[], Assembly | None]
"""A function that creates the assembly of large messages; it returns None if segments are yielded unassembled."""


class CommittedTransaction(NamedTuple):
    """The records of a transaction, of all its writers, in the partitions that are read.

    A `commit_index` of None marks records that were written outside of transactions. Empty `records` mean that
    everything up to this commit index was yielded; only readers with the option `cuts` get these.
    """

    commit_index: int | None
    records: dict[TopicPartition, list[ConsumerRecord]]


class _Stored(NamedTuple):
    header: BatchHeader
    batch: bytes


@dataclass(slots=True)
class _Partition:
    first_offset: int
    """First offset to yield records from."""
    plain_from: int
    """First offset to yield non-transactional records from."""
    position: int
    cut_offset: int = -1
    progress: int = NOTHING
    """Commit index up to which all markers have been read."""
    open: defaultdict[int, list[_Stored]] = field(default_factory=lambda: defaultdict(list))
    """Batches of transactions without a marker yet, by producer id."""


class Assembler:
    """An assembler of whole transactions from the batches of a fixed set of partitions. `add` the batches of `unread`
    partitions, then take the `ready` transactions."""

    def __init__(
        self,
        starts: Mapping[TopicPartition, int],
        after: int,
        bytes_max: int,
        assembly: NewAssembly = lambda: None,
        passing_over: Collection[tuple[TopicPartition, int]] = (),
    ) -> None:
        """`after` is a commit index: transactions up to it are not yielded. At most `bytes_max` bytes of batches wait.
        Records of the batches at the offsets `passing_over` are left out."""
        self.cut = NOTHING
        self.waiting_bytes = 0
        self._after = after
        self._bytes_max = bytes_max
        self._new_assembly = assembly
        self._plain = assembly()
        self._passing_over = frozenset(passing_over)
        self._partitions = {
            partition: _Partition(offset, offset, offset) for partition, offset in starts.items()
        }
        self._decided: defaultdict[int, dict[TopicPartition, list[_Stored]]] = defaultdict(dict)

    def stop(self) -> None:
        """Release the state of incomplete large messages; no batch is added afterwards."""
        if self._plain is not None:
            self._plain.keep(())

    def plain_from(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Leave out records before these offsets that are in no transaction."""
        for partition, offset in offsets.items():
            self._partitions[partition].plain_from = max(self._partitions[partition].plain_from, offset)

    def set_cut(self, cut: int, offsets: Mapping[TopicPartition, int]) -> None:
        """Set the consistent cut up to which batches are read: its commit index, and its offset in each partition."""
        self.cut = max(cut, self.cut)
        for partition, offset in offsets.items():
            state = self._partitions[partition]
            state.cut_offset = max(offset, state.cut_offset)
            self._look_whether_reached(state)

    def unread(self) -> list[TopicPartition]:
        """Return the partitions that are not read up to the cut, the one with the least progress first, so that few
        batches wait."""
        lacking = [
            partition for partition, state in self._partitions.items() if state.position < state.cut_offset
        ]
        return sorted(lacking, key=lambda partition: self._partitions[partition].progress)

    def takes(self, partition: TopicPartition, header: BatchHeader) -> bool:
        """Return whether a batch, the next of the partition, begins before the cut's offset in the partition."""
        state = self._partitions[partition]
        if header.base_offset < state.cut_offset:
            return True
        # Compaction has left a gap before the cut.
        state.position = max(state.position, state.cut_offset)
        self._look_whether_reached(state)
        return False

    def add(self, partition: TopicPartition, header: BatchHeader, batch: memoryview) -> list[ConsumerRecord]:
        """Add a batch. Returns its records at once if it is in no transaction.

        Raises UnreadableRecords. Raises KafkaError: CORRUPT_MESSAGE for a marker that has no commit index, or
        RECORD_LIST_TOO_LARGE if too many bytes would wait.
        """
        state = self._partitions[partition]
        plain: list[ConsumerRecord] = []
        if header.is_control:
            self._end(partition, state, header, batch)
        elif header.is_transactional:
            self._store(partition, state, header, batch)
        else:
            start = max(state.first_offset, state.plain_from)
            plain = self._records(self._plain, partition, header, batch, start)
        state.position = header.next_offset
        self._look_whether_reached(state)
        return plain

    def ready(self) -> Iterator[CommittedTransaction]:
        """Yield the committed transactions that are complete now, oldest decision first. Raises UnreadableRecords."""
        progress = min((state.progress for state in self._partitions.values()), default=NOTHING)
        for index in sorted(index for index in self._decided if index <= progress):
            parts = self._decided.pop(index)
            records: dict[TopicPartition, list[ConsumerRecord]] = {}
            for partition, batches in sorted(parts.items()):
                self.waiting_bytes -= sum(len(stored.batch) for stored in batches)
                found = self._decoded(partition, batches)
                if found:
                    records[partition] = found
            if records:
                yield CommittedTransaction(index, records)

    def _store(
        self, partition: TopicPartition, state: _Partition, header: BatchHeader, batch: memoryview
    ) -> None:
        self.waiting_bytes += len(batch)
        if self.waiting_bytes > self._bytes_max:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"transactions that are not complete hold more than {self._bytes_max} bytes, at "
                f"{partition.topic}-{partition.partition}, offset {header.base_offset}; a larger buffer_bytes_max "
                "reads on, or a consumer with isolation_level='read_committed'",
            )
        state.open[header.producer_id].append(_Stored(header, bytes(batch)))

    def _end(
        self, partition: TopicPartition, state: _Partition, header: BatchHeader, batch: memoryview
    ) -> None:
        try:
            marker = read_control_record(batch)
        except KafkaError as error:
            raise unreadable(partition, error, header, _NO_OUTCOME) from error
        written = state.open.pop(header.producer_id, [])
        committed = marker is not None and marker.type is ControlType.COMMIT
        index = NO_COMMIT_INDEX if marker is None else marker.commit_index
        if committed and index == NO_COMMIT_INDEX and written:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE,
                f"{partition.topic}-{partition.partition}: the marker at offset {header.base_offset} "
                "has no commit index",
            )
        if committed and written and index > self._after:
            self._decided[index].setdefault(partition, []).extend(written)
        else:
            self.waiting_bytes -= sum(len(stored.batch) for stored in written)
        # More markers with the same index may follow, if the transaction has several writers.
        state.progress = max(state.progress, index - 1)

    def _look_whether_reached(self, state: _Partition) -> None:
        if state.position >= state.cut_offset:
            state.progress = max(state.progress, self.cut)

    def _decoded(self, partition: TopicPartition, batches: Iterable[_Stored]) -> list[ConsumerRecord]:
        first = self._partitions[partition].first_offset
        ordered = sorted(batches, key=lambda stored: stored.header.base_offset)
        # A large message is in one transaction as a whole.
        assembly = self._new_assembly()
        found = [
            record
            for stored in ordered
            for record in self._records(assembly, partition, stored.header, stored.batch, first)
        ]
        if assembly is not None:
            assembly.finish()
        return found

    def _records(
        self,
        assembly: Assembly | None,
        partition: TopicPartition,
        header: BatchHeader,
        batch: memoryview | bytes,
        first_offset: int,
    ) -> list[ConsumerRecord]:
        if (partition, header.base_offset) in self._passing_over:
            return []
        try:
            return _whole(assembly, partition, _records(partition, header, batch, first_offset))
        except KafkaError as error:
            raise unreadable(partition, error, header, _LEFT_OUT) from error


def _whole(
    assembly: Assembly | None, partition: TopicPartition, records: list[ConsumerRecord]
) -> list[ConsumerRecord]:
    """Return the records with large messages assembled from their segments. Raises CORRUPT_MESSAGE."""
    if assembly is None:
        return records
    given, damage = assembly.take_in(partition, records)
    if damage is not None:
        raise damage.error
    return given


def _records(
    partition: TopicPartition, header: BatchHeader, batch: memoryview | bytes, first_offset: int
) -> list[ConsumerRecord]:
    cursor = consumer_records(partition, header, batch, first_offset)
    records: list[ConsumerRecord] = []
    while some := cursor.take(header.record_count):  # The second portion of a damaged batch is an error.
        records += some
    return records

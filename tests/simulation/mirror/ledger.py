"""The history of the source: every committed batch by the leader epoch that wrote it, and the sequence of these epochs.

The source forgets records by DeleteRecords, compaction and unclean elections. A copy is judged by all records that ever
existed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final
from unittest.mock import patch
from zlib import crc32

from ottla.dataplane.log.partition_log import PartitionLog
from ottla.dataplane.replication.replica.partition import Partition
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.record import NO_COMMIT_INDEX, decode_records, read_control_record
from ottla.protocol.records.record_batch import BatchHeader, walk_batches
from tests.histories.invariants import InvariantBroken
from tests.simulation.cluster.cluster import Node
from tests.simulation.machine.machine import Machine

UNKNOWN_EPOCH: Final = -1
READ_BYTES: Final = 1 << 20
BEHIND_CRC: Final = 21
"""Offset in a batch from which its bytes come from the producer and are covered by the checksum."""

Place = tuple[bytes, int]
"""Topic id and partition."""
Epochs = Sequence[tuple[int, int]]
"""Leader epochs and their first offsets; both rise."""
Fingerprint = tuple[object, ...]


def epoch_at(epochs: Epochs, offset: int) -> int:
    """Return the epoch that wrote an offset; UNKNOWN_EPOCH below the first."""
    found = bisect_right(epochs, offset, key=lambda entry: entry[1])
    return epochs[found - 1][0] if found else UNKNOWN_EPOCH


def batches_of(log: PartitionLog, start: int, end: int) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield the batches of a log that begin at `start` or after it, and below `end`.

    Raises KafkaError for a log that cannot be read now. A log that is being truncated has released segments, but still
    reports its old end.
    """
    offset = start
    while offset < end:
        found = log.read(offset, READ_BYTES, log.log_end_offset, at_least_one=True)
        data = memoryview(found.read())
        found.release()
        if not data:
            return
        read_from = offset
        for position, header in walk_batches(data):
            if header.base_offset >= end:
                return
            if header.base_offset >= start:
                yield header, data[position : position + header.size]
            offset = header.next_offset
        if offset <= read_from:
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE, f"{log!r} has no batch at {read_from} just now")


def first_whole(log: PartitionLog) -> int:
    """Return the end of the first batch if the log starts within it; else the log start."""
    start = log.log_start_offset
    found = log.read(start, READ_BYTES, log.log_end_offset, at_least_one=True)
    data = memoryview(found.read())
    found.release()
    for _, header in walk_batches(data):
        return header.next_offset if header.base_offset < start else start
    return start


def fingerprint(header: BatchHeader, batch: memoryview) -> Fingerprint:
    """Return the parts of a batch that its copy shares: all but the leader epoch and, in markers, the commit index."""
    if not header.is_control:
        return header.next_offset, header.crc, crc32(batch[BEHIND_CRC:])
    marker = read_control_record(batch)
    assert marker is not None, header
    return (header.next_offset, header.producer_id, header.producer_epoch, marker.type, header.max_timestamp)


@dataclass(slots=True)
class PartitionHistory:
    """The history of one partition of one topic of the source."""

    topic: str
    batches: dict[tuple[int, int], Fingerprint] = field(default_factory=dict)
    """Batches by leader epoch and base offset."""
    records: dict[tuple[int, int], Fingerprint] = field(default_factory=dict)
    """Records by leader epoch and offset; compaction changes batches, but not records."""
    markers: dict[int, int] = field(default_factory=dict)
    """Commit index of each marker, by offset."""
    lines: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """Epochs of each leader's log, by leader epoch."""

    def note_line(self, epoch: int, entries: Epochs) -> None:
        """Note the epochs of a leader's log; epochs that it has dropped since are kept."""
        kept = self.lines.get(epoch, [])
        if entries:
            kept = [entry for entry in kept if entry[1] < entries[0][1] and entry[0] <= entries[0][0]]
        # The epoch at the log's start begins there for the log, once its first records are dropped.
        is_known = bool(kept) and kept[-1][0] == entries[0][0]
        self.lines[epoch] = [*kept, *entries[is_known:]]

    def line_of(self, epoch: int) -> Epochs:
        """Return the epochs of a leader's log.

        A leader that led for less than a turn, e.g. after a pause, was not observed. The next leader with its records
        has equal epochs up to there.
        """
        if epoch in self.lines:
            return self.lines[epoch]
        later = (line for led, line in sorted(self.lines.items()) if led > epoch)
        has_its_records = next(
            (line for line in later if any(known_epoch == epoch for known_epoch, _ in line)), []
        )
        return [entry for entry in has_its_records if entry[0] <= epoch]


def common_end(copy: Epochs, end: int, line: Epochs) -> int:
    """Return the offset up to which a copy that ends at `end` agrees with a line.

    Dropped parts of the line count as equal.
    """
    first = line[0][1] if line else 0
    starts = sorted({first, *(start for _, start in (*copy, *line) if first <= start < end)})
    return next(
        (start for start in starts if start < end and epoch_at(copy, start) != epoch_at(line, start)), end
    )


class SourceLedger:
    """An observer of the source's leaders, and a check that an epoch has one batch at an offset."""

    def __init__(self, brokers: dict[int, Node]) -> None:
        self._nodes = {node.name: node for node in brokers.values()}
        self.compacted: set[str] = set()
        """Compacted topics."""
        self.histories: dict[Place, PartitionHistory] = {}
        self.ids: defaultdict[str, list[bytes]] = defaultdict(list)
        """Ids of the topics that had a name, in order."""
        self.starts: Counter[str] = Counter()
        """Highest log start of any replica, by the partition's folder name."""
        self._read: dict[Partition, tuple[int, int]] = {}
        self._again: defaultdict[str, list[Partition]] = defaultdict(list)
        """Partitions that could not be read, by broker."""

    def observe(self, node: Node) -> None:
        """Note the changed partitions."""
        if node.name in self._nodes:
            for partition in dict.fromkeys((*self._again.pop(node.name, ()), *node.moved())):
                try:
                    self._note(partition)
                except KafkaError:
                    # Its files are just being exchanged for what compaction has left of them.
                    self._again[node.name].append(partition)

    def of(self, place: Place) -> PartitionHistory | None:
        """Return the history of a partition, or None if no leader was ever observed."""
        return self.histories.get(place)

    def markers_of(self, place: Place) -> list[tuple[int, int]]:
        """Return offset and commit index of each marker in a partition."""
        history = self.histories.get(place)
        return [] if history is None else sorted(history.markers.items())

    @contextmanager
    def watching(self, machine: Machine) -> Iterator[None]:
        """Observe log starts within the block, since they may move without other changes."""
        advance: Callable[[PartitionLog, int], None] = PartitionLog.advance_log_start_offset

        def advanced(log: PartitionLog, offset: int) -> None:
            advance(log, offset)
            if machine.running is not None and machine.running.process.name in self._nodes:
                name = log.directory.name
                self.starts[name] = max(self.starts[name], log.log_start_offset)

        with patch.object(PartitionLog, "advance_log_start_offset", advanced):
            yield

    def begin_with(self, partition: Partition) -> None:
        """Start with the log of a leader that was not observed before."""
        history, entries = self._history(partition), partition.log.leader_epochs.entries
        for number, (epoch, _) in enumerate(entries, 1):
            history.note_line(epoch, entries[:number])
        self._note(partition)

    def _history(self, partition: Partition) -> PartitionHistory:
        place = (partition.topic_id, partition.index)
        if (found := self.histories.get(place)) is None:
            found = self.histories[place] = PartitionHistory(partition.topic)
            ids = self.ids[partition.topic]
            if partition.topic_id not in ids:
                ids.append(partition.topic_id)
        return found

    def _note(self, partition: Partition) -> None:
        history, log = self._history(partition), partition.log
        if partition.leader is None:
            return
        epoch, end = partition.leader_epoch, partition.high_watermark
        history.note_line(epoch, log.leader_epochs.entries)
        known_epoch, start = self._read.get(partition, (UNKNOWN_EPOCH, 0))
        start = max(log.log_start_offset, start if known_epoch == epoch else 0)
        if partition.topic in self.compacted:
            for header, batch in batches_of(log, start, end):
                _keep_records(history, header, batch)
        else:
            for header, batch in batches_of(log, start, end):
                _keep(history, header, batch)
        self._read[partition] = (epoch, end)


def _keep(history: PartitionHistory, header: BatchHeader, batch: memoryview) -> None:
    key, found = (header.partition_leader_epoch, header.base_offset), fingerprint(header, batch)
    if history.batches.setdefault(key, found) != found:
        raise InvariantBroken(
            "an epoch has one batch at an offset",
            f"{history.topic} of the source has {found} and {history.batches[key]} at epoch and offset {key}",
        )
    marker = read_control_record(batch) if header.is_control else None
    if marker is not None and marker.commit_index != NO_COMMIT_INDEX:
        history.markers[header.base_offset] = marker.commit_index


def _keep_records(history: PartitionHistory, header: BatchHeader, batch: memoryview) -> None:
    for offset, found in records_of(header, batch):
        history.records.setdefault((header.partition_leader_epoch, offset), found)


def records_of(header: BatchHeader, batch: memoryview) -> Iterator[tuple[int, Fingerprint]]:
    """Yield the records of a batch by offset; a marker counts as one record."""
    if header.is_control:
        yield header.base_offset, fingerprint(header, batch)
        return
    for record in decode_records(batch):
        yield record.offset, (record.timestamp_ms, record.key, record.value, tuple(record.headers))

"""Logs for tests of compaction: written batch by batch, cleaned in this process, and read back."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from ottla.dataplane.log import LogConfig, PartitionLog
from ottla.dataplane.log.compaction.cleaning import LogCleaning
from ottla.dataplane.log.compaction.job import CleaningJob, GroupCleaned, Limits, LogCleaned
from ottla.dataplane.log.compaction.keeping import LastRecord
from ottla.protocol.records.compression import Compression
from ottla.protocol.records.record import (
    ControlRecord,
    ControlType,
    Record,
    decode_control_record,
    decode_records,
    encode_batch,
    encode_control_batch,
)
from ottla.protocol.records.record_batch import BatchHeader, check_integrity, walk_batches

NOW_MS = 1_000_000
RETENTION_MS = 500


class Producer(NamedTuple):
    """The writer of a batch."""

    id: int
    epoch: int
    transactional: bool = False


@dataclass
class History:
    """A log under construction, with sequences and offsets as a broker assigns them."""

    directory: Path
    segment_bytes: int = 600
    log: PartitionLog = field(init=False)

    def __post_init__(self) -> None:
        config = LogConfig(
            segment_bytes=self.segment_bytes, index_interval_bytes=100, cleanup_policy="compact"
        )
        self.log = PartitionLog.open(
            self.directory, config, clean_shutdown=False, recovery_point=0, now_ms=NOW_MS
        )
        self._sequences: dict[tuple[int, int], int] = {}

    def write(
        self,
        records: Sequence[tuple[bytes | None, bytes | None]],
        producer: Producer | None = None,
        compression: Compression = Compression.NONE,
        timestamp_ms: int = NOW_MS,
    ) -> int:
        """Write one batch, and return its base offset."""
        stamped = [(key, value, timestamp_ms + number) for number, (key, value) in enumerate(records)]
        if producer is None:
            return self._append(encode_batch(stamped, compression=compression))
        sequence = self._sequences.get(producer[:2], 0)
        self._sequences[producer[:2]] = sequence + len(records)
        return self._append(
            encode_batch(
                stamped,
                compression=compression,
                producer_id=producer.id,
                producer_epoch=producer.epoch,
                base_sequence=sequence,
                transactional=producer.transactional,
            )
        )

    def end(self, producer: Producer, how: ControlType) -> int:
        """Write a transaction marker, and return its offset."""
        return self._append(
            encode_control_batch(
                ControlRecord(how, 0),
                timestamp_ms=NOW_MS,
                producer_id=producer.id,
                producer_epoch=producer.epoch,
            )
        )

    def _append(self, batch: bytes) -> int:
        patched = bytearray(batch)
        base_offset = self.log.log_end_offset
        struct.pack_into(">q", patched, 0, base_offset)
        struct.pack_into(">i", patched, 12, 0)
        self.log.append_as_follower(memoryview(patched), NOW_MS)
        return base_offset


def job_for(
    log: PartitionLog, first_dirty: int, *, now_ms: int = NOW_MS, dedupe_bytes: int = 1 << 20, upper: int = -1
) -> CleaningJob:
    """Return a job for all inactive segments, without the broker's cleaner."""
    segments = log.segments
    return CleaningJob(
        directory=log.directory,
        segments=[(segment.base_offset, segment.size) for segment in segments],
        first_dirty_offset=first_dirty,
        upper_bound=segments[-1].base_offset if upper < 0 else upper,
        high_watermark=log.log_end_offset,
        now_ms=now_ms,
        delete_retention_ms=RETENTION_MS,
        segment_bytes=log.config.segment_bytes,
        segment_index_bytes=log.config.segment_index_bytes,
        index_interval_bytes=log.config.index_interval_bytes,
        producers={
            entry.producer_id: LastRecord(
                entry.batches[-1].last_offset if entry.batches else -1, entry.producer_epoch
            )
            for entry in log.producers.entries()
        },
        limits=Limits(dedupe_bytes=dedupe_bytes, io_buffer_bytes=512),
    )


def swap(log: PartitionLog, done: GroupCleaned) -> None:
    """Replace segments by one cleaned group."""
    old = [segment for segment in log.segments if segment.base_offset in done.segments]
    log.old_segments.replace(old, [done.file])


def clean(log: PartitionLog, job: CleaningJob) -> LogCleaned:
    """Do a whole job."""
    return LogCleaning(job, lambda _size: None).run(lambda done: swap(log, done))


def batches(log: PartitionLog) -> Iterator[tuple[BatchHeader, bytes]]:
    """Yield every batch as a reader from the start gets it; sizes, order and CRCs are checked."""
    offset, end = log.log_start_offset, log.log_end_offset
    while offset < end:
        piece = log.read(offset, 1, end, at_least_one=True)
        data = piece.read()
        piece.release()
        if not data:
            return
        for position, header in walk_batches(data):
            check_integrity(data, position, header)
            assert header.last_offset >= offset
            yield header, data[position : position + header.size]
            offset = header.next_offset


class Seen(NamedTuple):
    """The content of a log."""

    records: dict[int, Record]
    """All data records by offset."""
    committed: dict[int, Record]
    """Data records for a read-committed consumer, by offset."""
    markers: dict[int, tuple[int, ControlType]]

    @property
    def state(self) -> dict[bytes, bytes]:
        """The last value of each key."""
        latest: dict[bytes, bytes | None] = {}
        for record in self.committed.values():
            if record.key is not None:
                latest[record.key] = record.value
        return {key: value for key, value in latest.items() if value is not None}


def look(log: PartitionLog) -> Seen:
    """Read the whole log; transactions without a marker count as aborted."""
    seen = Seen({}, {}, {})
    pending: dict[int, list[Record]] = {}
    outcomes: dict[int, bool] = {}
    for header, data in batches(log):
        for record in decode_records(data):
            if header.is_control:
                control = decode_control_record(record)
                assert control is not None
                seen.markers[record.offset] = header.producer_id, control.type
                for each in pending.pop(header.producer_id, []):
                    outcomes[each.offset] = control.type is ControlType.COMMIT
                continue
            assert record.offset <= header.last_offset
            seen.records[record.offset] = record
            if header.is_transactional:
                pending.setdefault(header.producer_id, []).append(record)
            else:
                outcomes[record.offset] = True
    committed = {offset: record for offset, record in seen.records.items() if outcomes.get(offset)}
    seen.committed.update(committed)
    return seen

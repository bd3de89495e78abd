"""The placement of batches that are about to be appended: offsets, epochs and timestamps, decided before a byte is
written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.records.record import (
    NO_COMMIT_INDEX,
    ControlRecord,
    read_control_record,
    without_commit_index,
)
from ...protocol.records.record_batch import (
    CONTROL_FLAG,
    HEADER_SIZE,
    MAGIC,
    NO_PRODUCER_ID,
    BatchHeader,
    check_integrity,
    compute_crc,
    parse_header,
    patch_offset_and_epoch,
    patch_timestamp,
    walk_batches,
)
from .config import OFFSETS_MAX, LogConfig
from .segments.segment import POSITION_MAX, Segment

_EPOCH_MAX = 2**31 - 1


class PlacedBatch(NamedTuple):
    """A batch in a buffer; its header has the values that it will have in the log."""

    position: int
    """The batch's byte position in the buffer."""
    base_offset: int
    header: BatchHeader
    marker: ControlRecord | None = None
    """The content of a transaction marker; None for other batches."""


class PlacedBatches(NamedTuple):
    """One or more batches that continue the log, and the log's end after them."""

    batches: list[PlacedBatch]
    next_offset: int
    has_gaps: bool = False
    """True if there are gaps between the offsets of the batches, or before them."""

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of the placed batches, in ms."""
        batches = self.batches
        if len(batches) == 1:
            return batches[0].header.max_timestamp
        return max(batch.header.max_timestamp for batch in batches)


def place_produced(
    batches: memoryview,
    parsed: list[tuple[int, BatchHeader]],
    config: LogConfig,
    offset: int,
    leader_epoch: int,
    now_ms: int,
    max_timestamps: Sequence[int] | None = None,
) -> PlacedBatches:
    """Assign offsets, from `offset` on, to a producer's validated batches, and patch them in place.

    `max_timestamps` has the largest timestamp of each batch's records; with None the headers' values are right.
    """
    stamps = config.stamps_at_append
    placed = []
    for number, (position, header) in enumerate(parsed):
        patch_offset_and_epoch(batches, position, offset, leader_epoch)
        largest = header.max_timestamp if max_timestamps is None else max_timestamps[number]
        if stamps or largest != header.max_timestamp or header.is_log_append_time:
            stamp = now_ms if stamps else largest
            patch_timestamp(batches, position, header, log_append_time=stamps, max_timestamp_ms=stamp)
            header = parse_header(batches, position)
        placed.append(PlacedBatch(position, offset, header))
        offset += header.last_offset_delta + 1
    return PlacedBatches(placed, offset)


def place_fetched(
    batches: memoryview, log_name: str, log_end_offset: int, latest_epoch: int, leader_epoch: int | None
) -> PlacedBatches:
    """Check batches of a leader, which carry their offsets and epochs; no checksum covers these fields.

    There may be gaps between offsets, if the leader's log was compacted, but offsets never fall. Epochs never fall
    below `latest_epoch`, the epoch at the log's end, nor rise above `leader_epoch`, the epoch of the followed leader.

    Raises KafkaError: CORRUPT_MESSAGE for damaged bytes, INVALID_RECORD if they do not continue the log.
    """
    offset, has_gaps = log_end_offset, False
    epoch_max = _EPOCH_MAX if leader_epoch is None else leader_epoch
    placed = []
    for position, header in walk_batches(batches):
        check_integrity(batches, position, header)
        base_offset = header.base_offset
        if base_offset != offset:
            if base_offset < offset:
                raise KafkaError(
                    ErrorCode.INVALID_RECORD,
                    f"{log_name} ends at {offset}, the leader sent a batch at {base_offset}",
                )
            has_gaps = True
        if header.last_offset_delta < 0:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the batch at offset {base_offset} spans no offset")
        epoch = header.partition_leader_epoch
        if not latest_epoch <= epoch <= epoch_max:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE,
                f"the batch at offset {base_offset} is of leader epoch {epoch}, {latest_epoch} to {epoch_max} "
                "are possible there",
            )
        latest_epoch = epoch
        marker = None
        if header.attributes & CONTROL_FLAG and header.producer_id != NO_PRODUCER_ID:
            marker = read_control_record(batches[position : position + header.size])
        placed.append(PlacedBatch(position, base_offset, header, marker))
        offset = base_offset + header.last_offset_delta + 1
    return PlacedBatches(placed, offset, has_gaps)


def single_fetched(
    batch: memoryview, log_end_offset: int, latest_epoch: int, leader_epoch: int | None
) -> BatchHeader | None:
    """Return the header of a single batch that begins at the log end, is not a marker, and passes all checks of
    `place_fetched`, which is the usual case with one record in flight. Returns None in all other cases; `place_fetched`
    then finds the fault, if there is one."""
    size = len(batch)
    if size < HEADER_SIZE:
        return None
    header = parse_header(batch)
    if (
        header.base_offset != log_end_offset
        or header.size != size
        or header.magic != MAGIC
        or header.last_offset_delta < 0
        or header.attributes & CONTROL_FLAG
        or not latest_epoch
        <= header.partition_leader_epoch
        <= (_EPOCH_MAX if leader_epoch is None else leader_epoch)
        or header.crc != compute_crc(batch, 0, size)
    ):
        return None
    return header


def place_copied(batches: memoryview, log_name: str, log_end_offset: int, leader_epoch: int) -> PlacedBatches:
    """Check batches of another cluster (writable), which keep their offsets. Patch in place that they belong to this
    cluster's leader epoch, and that their markers have no commit index of this cluster.

    Raises KafkaError: CORRUPT_MESSAGE for damaged bytes, UNSUPPORTED_FOR_MESSAGE_FORMAT for older formats,
    INVALID_RECORD if they do not continue the log.
    """
    offset, has_gaps = log_end_offset, False
    placed = []
    for position, header in walk_batches(batches):
        check_integrity(batches, position, header)
        base_offset = header.base_offset
        if base_offset < offset or header.last_offset_delta < 0:
            raise KafkaError(
                ErrorCode.INVALID_RECORD,
                f"{log_name} ends at {offset}, and was sent a batch from {base_offset} to {header.last_offset}",
            )
        has_gaps |= base_offset > offset
        marker = None
        if header.attributes & CONTROL_FLAG and header.producer_id != NO_PRODUCER_ID:
            marker = read_control_record(batches[position : position + header.size])
            if marker is not None and marker.commit_index != NO_COMMIT_INDEX:
                without_commit_index(batches, position, header)
                marker = marker._replace(commit_index=NO_COMMIT_INDEX)
        patch_offset_and_epoch(batches, position, base_offset, leader_epoch)
        placed.append(PlacedBatch(position, base_offset, parse_header(batches, position), marker))
        offset = header.next_offset
    return PlacedBatches(placed, offset, has_gaps)


def roll_jitter_ms(config: LogConfig, directory: Path, active: Segment) -> int:
    """Return the time by which the active segment is rolled earlier than `segment.ms` (`segment.jitter.ms`).

    The jitter follows from the log and the segment, and differs between logs, so that logs of one start do not all roll
    at once.
    """
    most = min(config.segment_jitter_ms, config.segment_ms)
    if most == 0:
        return 0
    return crc32(f"{directory.name}/{active.base_offset}".encode()) % (most + 1)


def must_roll(
    segment: Segment,
    config: LogConfig,
    size: int,
    max_timestamp: int,
    next_offset: int,
    jitter_ms: int,
    now_ms: int,
) -> bool:
    """Return whether batches of `size` bytes that end before `next_offset` need a new segment, because the active one
    is full or old.

    The age is the time from the first batch's timestamp to the new batches', or by the clock if they have no
    timestamps, as in Kafka. A segment is old `jitter_ms` earlier.
    """
    held = segment.size
    if held == 0:
        return False
    if held + size > config.segment_bytes or held + size > POSITION_MAX:
        return True
    first = segment.first_timestamp
    if first is not None and first >= 0 and max_timestamp >= 0:
        waited = max_timestamp - first
    else:
        waited = now_ms - segment.created_ms
    return (
        waited > config.segment_ms - jitter_ms
        or next_offset - segment.base_offset > OFFSETS_MAX
        or segment.offset_index.size >= config.segment_index_bytes
        or segment.time_index.size >= config.segment_index_bytes
    )

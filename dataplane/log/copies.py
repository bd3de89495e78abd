"""The log of a copy: a partition that mirrors another cluster's partition, whose batches keep their offsets."""

from __future__ import annotations

from bisect import bisect_right

from ...protocol.records.record_batch import CONTROL_FLAG, parse_header
from .partition_log import PartitionLog
from .placement import place_copied
from .storage_errors import BrokenBatch, damage


def append_copied(log: PartitionLog, batches: memoryview, leader_epoch: int, now_ms: int) -> None:
    """Append, as the leader, whole batches of the source (writable: the epoch is patched in place). Offsets stay
    unchanged, and there may be gaps between them.

    Raises KafkaError as `place_copied` does; KAFKA_STORAGE_ERROR. Nothing was appended.
    """
    log.check_usable()
    first = parse_header(batches)
    if first.base_offset < log.log_end_offset < first.next_offset:
        _step_back_over_gap(log, first.base_offset)
    placement = place_copied(batches, log.directory.name, log.log_end_offset, leader_epoch)
    if placement.has_gaps:
        log.segment_list.note_gaps()
    log.append_placed(batches, placement, leader_epoch, now_ms)


def _step_back_over_gap(log: PartitionLog, offset: int) -> None:
    """Make the copied log end at `offset`, where a batch of the source begins, if the copy has no records from there
    on.

    The source's log starts within a batch, which can only be copied as a whole. If this log has records there, nothing
    happens.
    """
    if log.log_start_offset == log.log_end_offset:
        log.truncation.truncate_fully_and_start_at(offset)
    elif log.segment_list.is_empty_from(offset):
        log.truncation.truncate_to(offset)


def look_for_marker(log: PartitionLog, offset: int, batches_max: int) -> tuple[int | None, int]:
    """Look for the first transaction marker at or after `offset`, in at most `batches_max` batches. Returns the
    marker's offset or None, and the offset up to which there is no marker, which is the log end if there is no marker
    at all.

    Raises KafkaError: KAFKA_STORAGE_ERROR if a segment cannot be read, or is damaged.
    """
    offset, segments = max(offset, log.log_start_offset), log.segment_list.copy()
    behind, left = bisect_right(segments, offset, key=lambda segment: segment.base_offset), batches_max
    for segment in segments[max(0, behind - 1) :]:
        found = segment.find(max(offset, segment.base_offset))
        if found is None:
            continue
        try:
            for position, header in segment.walk(found[0], found[1].base_offset):
                is_control = header.attributes & CONTROL_FLAG and header.base_offset >= offset
                if is_control and segment.marker_at(position, header) is not None:
                    return header.base_offset, header.base_offset
                left -= 1
                if left == 0:
                    return None, header.next_offset
        except BrokenBatch as broken:
            raise damage(segment.path, broken.position, broken.reason) from broken
    return None, log.log_end_offset


def end_at(log: PartitionLog, offset: int) -> None:
    """Make the log end at `offset`: later records are removed, and missing offsets are left out. A batch that contains
    the offset is removed as a whole.

    Raises KafkaError: KAFKA_STORAGE_ERROR; the log is then offline.
    """
    before = log.log_end_offset
    log.on_move()
    if offset < log.log_end_offset:
        log.truncation.truncate_to(offset)
    elif log.log_start_offset == log.log_end_offset:
        log.truncation.truncate_fully_and_start_at(offset)
    elif offset > log.log_end_offset:
        log.truncation.leave_out_to(offset)
    # A leadership that wrote nothing has no offsets after a gap, so its epoch is removed. Followers do not have this
    # epoch, and the leader would report again and again that they diverge there.
    log.leader_epochs.truncate_from_end(min(before, log.log_end_offset))

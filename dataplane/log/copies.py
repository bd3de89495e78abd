"""The log of a copy: a partition of another cluster, whose batches keep their offsets."""

from __future__ import annotations

from bisect import bisect_right

from ...protocol.records.record_batch import CONTROL_FLAG, parse_header
from .partition_log import PartitionLog
from .placement import place_copied
from .storage_errors import BrokenBatch, damage


def append_copied(log: PartitionLog, batches: memoryview, leader_epoch: int, now_ms: int) -> None:
    """As leader, append whole batches of the source (writable: the epoch is patched in place). Their offsets stay as
    they are; some may be left out.

    Raises KafkaError: as `place_copied`; KAFKA_STORAGE_ERROR. Nothing was appended.
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
    """The source's log starts within a batch, which can only be had as a whole: it may begin where ours has nothing.
    Where ours has something, nothing happens."""
    if log.log_start_offset == log.log_end_offset:
        log.truncation.truncate_fully_and_start_at(offset)
    elif log.segment_list.is_empty_from(offset):
        log.truncation.truncate_to(offset)


def look_for_marker(log: PartitionLog, offset: int, batches_max: int) -> tuple[int | None, int]:
    """Look for the first transaction marker at or behind `offset`, in so many batches at most. Where it lies, else
    None; and up to where there is none, which is the log end if there is none at all.

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
    """Have the log end at `offset`: what is behind goes, what is missing is left out. A batch that holds the offset
    goes as a whole.

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
    # Who led and wrote nothing has no offsets now that some are left out: followers, which know of no such epoch, would
    # be told again and again that they diverge there.
    log.leader_epochs.truncate_from_end(min(before, log.log_end_offset))

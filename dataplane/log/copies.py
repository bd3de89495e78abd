"""The log of a copy: a partition of another cluster, whose batches keep their offsets."""

from __future__ import annotations

from ...protocol.record_batch import parse_header
from .partition_log import PartitionLog
from .placement import place_copied


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
        log.truncate_fully_and_start_at(offset)
    elif log.segment_list.is_empty_from(offset):
        log.truncate_to(offset)


def end_at(log: PartitionLog, offset: int) -> None:
    """Have the log end at `offset`: what is behind goes, what is missing is left out. A batch that holds the offset
    goes as a whole.

    Raises KafkaError: KAFKA_STORAGE_ERROR; the log is then offline.
    """
    if offset < log.log_end_offset:
        log.truncate_to(offset)
    elif log.log_start_offset == log.log_end_offset:
        log.truncate_fully_and_start_at(offset)
    elif offset > log.log_end_offset:
        log.leave_out_to(offset)
    log.leader_epochs.truncate_from_end(log.log_end_offset)

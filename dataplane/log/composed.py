"""Batches that a broker composes itself and appends to a log that it leads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...protocol.records.record import ControlRecord, ControlType, encode_control_batch
from ...protocol.records.record_batch import parse_header, walk_batches
from .placement import place_produced

if TYPE_CHECKING:
    from .open_log import AppendResult, OpenLog


def append_unsequenced(log: OpenLog, batches: memoryview, leader_epoch: int, now_ms: int) -> AppendResult:
    """Append batches (writable: offsets and epochs are patched in place) without checks of producer sequences or of the
    topic's configuration. It serves for offsets that are committed in a transaction.

    Raises KafkaError: KAFKA_STORAGE_ERROR; nothing was appended.
    """
    log.check_usable()
    parsed = list(walk_batches(batches))
    placement = place_produced(batches, parsed, log.config, log.log_end_offset, leader_epoch, now_ms)
    return log.append_placed(batches, placement, leader_epoch, now_ms)


def append_marker(
    log: OpenLog,
    producer_id: int,
    producer_epoch: int,
    *,
    commit: bool,
    number: int,
    commit_index: int,
    leader_epoch: int,
    now_ms: int,
) -> AppendResult:
    """Append the marker that ends a producer's transaction. The caller has checked that this is allowed.

    `number` is the transaction's number; with `NO_NUMBER` the log keeps the producer's present number. Raises
    KafkaError: KAFKA_STORAGE_ERROR; nothing was appended.
    """
    log.check_usable()
    marker = ControlRecord(ControlType.COMMIT if commit else ControlType.ABORT, number, commit_index)
    batch = encode_control_batch(
        marker, timestamp_ms=now_ms, producer_id=producer_id, producer_epoch=producer_epoch
    )
    with memoryview(bytearray(batch)) as view:
        parsed = [(0, parse_header(view))]
        placement = place_produced(view, parsed, log.config, log.log_end_offset, leader_epoch, now_ms)
        placement.batches[0] = placement.batches[0]._replace(marker=marker)
        return log.append_placed(view, placement, leader_epoch, now_ms)

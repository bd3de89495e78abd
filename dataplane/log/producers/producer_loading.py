"""Restoration of the state of producers and transactions: from snapshots, and from the log after them.

Headers contain all of it except for markers, whose record is read.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from ....protocol.records.record import ControlRecord
from ....protocol.records.record_batch import CONTROL_FLAG, NO_PRODUCER_ID, BatchHeader
from ..config import LogConfig
from ..durable_files import sync_directory
from ..segments.aborted_transaction import AbortedTransaction
from ..segments.segment import Segment
from ..storage_errors import BrokenBatch, damage
from .open_transactions import OpenTransactions
from .producer_snapshot import read_snapshot, snapshot_offsets, snapshot_path
from .producer_state import ProducerStates

logger = logging.getLogger(__name__)


_Batch = tuple[Segment, BatchHeader, ControlRecord | None]
"""A segment, the header of a batch in it, and the content of the batch if it is a marker."""


def load_producers(
    directory: Path,
    segments: list[Segment],
    snapshots: Sequence[int],
    next_offset: int,
    config: LogConfig,
    now_ms: int,
    without_producers: Collection[Segment] = (),
) -> ProducerStates:
    """Return the producer state at `next_offset`, where the log ends: the latest snapshot that is not above it, then
    the batches after it. `snapshots` has the offsets of all snapshots, rising. Segments in `without_producers` are not
    read, since all their batches are of producers without an id.

    Deleted are snapshots above the log end, damaged ones, and those that are neither the newest nor at the base offset
    of a segment. Snapshots above the log end are deleted durably, before the log grows to their offsets again, with
    other records.

    Raises KafkaError: KAFKA_STORAGE_ERROR.
    """
    producers, start = _load_snapshot(directory, segments, snapshots, next_offset)
    if start is None:
        start = segments[0].base_offset
    else:
        producers.expire(now_ms, config.producer_id_expiration_ms)
    if start < next_offset:
        for _, header, marker in _batches_from(segments, start, without_producers):
            _note(producers, header, marker, now_ms)
    return producers


def told_by_batches_from(producers: ProducerStates, log_end_offset: int) -> int:
    """Return the offset from which the log's batches contain the last five batches of every producer; 0 if a snapshot
    is needed for that."""
    if not producers.transactions.is_pristine:
        return 0
    entries = producers.entries()
    return min(
        (
            0 if entry.is_transactional or not entry.batches else entry.batches[0].first_offset
            for entry in entries
        ),
        default=log_end_offset,
    )


def load_transactions(directory: Path, segments: Sequence[Segment], high_watermark: int) -> OpenTransactions:
    """Return the transactions of the log, including those that ended at `high_watermark` or above.

    Raises KafkaError: KAFKA_STORAGE_ERROR.
    """
    producers, start = _snapshot_below(directory, segments, high_watermark)
    for _, header, marker in _batches_from(segments, start):
        _note(producers, header, marker, 0)
    return producers.transactions


def rebuild_transaction_indexes(directory: Path, segments: Sequence[Segment]) -> None:
    """Fill the indexes of aborted transactions that were reset, if there are markers. All of them but the last
    segment's are written and flushed.

    Raises KafkaError: KAFKA_STORAGE_ERROR.
    """
    incomplete = [segment for segment in segments if segment.transaction_index.is_incomplete]
    if not incomplete:
        return
    producers, start = _snapshot_below(directory, segments, incomplete[0].base_offset)
    for segment, header, marker in _batches_from(segments, start):
        aborted = _note(producers, header, marker, 0)
        if aborted is not None and segment.transaction_index.is_incomplete:
            segment.transaction_index.append(aborted)
    for segment in incomplete:
        segment.transaction_index.complete(write=segment is not segments[-1])


def _note(
    producers: ProducerStates, header: BatchHeader, marker: ControlRecord | None, now_ms: int
) -> AbortedTransaction | None:
    if marker is not None:
        return producers.record_marker(header, marker, header.base_offset, now_ms)
    if header.producer_id != NO_PRODUCER_ID:
        producers.record(header, header.base_offset, now_ms)
    return None


# Snapshots


def _load_snapshot(
    directory: Path, segments: list[Segment], snapshots: Sequence[int], next_offset: int
) -> tuple[ProducerStates, int | None]:
    bases = {segment.base_offset for segment in segments}
    loaded: ProducerStates | None = None
    loaded_at: int | None = None
    for offset in reversed(snapshots):
        path = snapshot_path(directory, offset)
        usable = segments[0].base_offset <= offset <= next_offset
        if usable and loaded is None:
            loaded, loaded_at = _read(directory, offset), offset
            if loaded is not None:
                continue
            usable = False
        if not usable or offset not in bases:
            path.unlink(missing_ok=True)
    if snapshots and snapshots[-1] > next_offset:
        sync_directory(directory)
    return (ProducerStates(), None) if loaded is None else (loaded, loaded_at)


def _snapshot_below(directory: Path, segments: Sequence[Segment], offset: int) -> tuple[ProducerStates, int]:
    """Return the producer state of the newest readable snapshot at or below `offset`, and its offset. Without a
    snapshot, return the empty state and the offset of the log's first segment."""
    first = segments[0].base_offset
    for found in reversed(snapshot_offsets(directory)):
        if first <= found <= offset:
            producers = _read(directory, found)
            if producers is not None:
                return producers, found
    return ProducerStates(), first


def _read(directory: Path, offset: int) -> ProducerStates | None:
    """Read the snapshot of producer state at `offset`; None for a damaged file."""
    path = snapshot_path(directory, offset)
    try:
        producers = read_snapshot(path)
    except ValueError as error:
        logger.warning("ignoring %s: %s", path, error)
        return None
    return ending_at(producers, offset)


def ending_at(producers: ProducerStates, offset: int) -> ProducerStates:
    """Return `producers` with the end of their transactions bounded by the snapshot's `offset`. A snapshot has the
    starts of transactions, but not their last offsets."""
    transactions = producers.transactions
    if not transactions.is_pristine or any(entry.is_transactional for entry in producers.entries()):
        transactions.last_offset = offset - 1
    return producers


# Batches


def _batches_from(
    segments: Sequence[Segment], offset: int, left_out: Collection[Segment] = ()
) -> Iterator[_Batch]:
    for number, segment in enumerate(segments):
        is_below = number + 1 < len(segments) and segments[number + 1].base_offset <= offset
        if is_below or segment in left_out:
            continue
        found = segment.offset_index.lookup(offset)
        try:
            for position, header in segment.walk(0 if found is None else found[1], segment.base_offset):
                if header.base_offset >= offset:
                    marker = segment.marker_at(position, header) if header.attributes & CONTROL_FLAG else None
                    yield segment, header, marker
        except BrokenBatch as broken:
            raise damage(segment.path, broken.position, broken.reason) from broken

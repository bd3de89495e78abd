"""The cleaning of one log's files: find its transactions, map the keys of its dirty part, then copy the records that
stay.

Sources are only read. The cleaned files lie beside them, flushed, until the broker swaps them in.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ....protocol.errors import KafkaError
from ....protocol.records.record import ControlType, read_control_record
from ....protocol.records.record_batch import BatchHeader, check_integrity, parse_header
from ..segments.aborted_transaction import AbortedTransaction
from ..segments.batch_walk import walk_file
from ..segments.segment import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX
from ..segments.transaction_index import decode_transactions, read_if_there
from ..storage_errors import BrokenBatch, damage
from .cleaned_segment import CleanedSegment
from .grouping import SegmentSizes, group
from .job import CleaningJob, GroupCleaned, LogCleaned
from .keeping import Keeper, Rules
from .offset_map import SLOT_BYTES, OffsetMap
from .record_scan import Span, readable_records
from .rewriting import empty_batch, reduced_batch
from .transactions import AbortedRange, TransactionFilter, TransactionScan

logger = logging.getLogger(__name__)


class SourceChanged(Exception):
    """The error that a log has changed since its cleaning job was made: a segment file is gone or shorter. The job is
    void."""


class LogCleaning:
    """The work of one cleaning job: it writes cleaned copies of a log's segments. `spent` is called with the size of
    each read and write in bytes; it may sleep or raise."""

    def __init__(self, job: CleaningJob, spent: Callable[[int], None]) -> None:
        self._job = job
        self._spent = spent
        self._read = self._kept = 0
        self._unreadable: list[int] = []  # base offsets of batches that were copied without being read

    def run(self, cleaned: Callable[[GroupCleaned], None]) -> LogCleaned:
        """Clean the log. `cleaned` is called with each group of segments as soon as its file is complete.

        Raises SourceChanged if the log has changed. Raises KafkaError: KAFKA_STORAGE_ERROR or CORRUPT_MESSAGE if the
        log cannot be read, or is damaged. Raises OSError if the disk refused to read or write.
        """
        job = self._job
        aborted, largest_batch, dirty_records = self._scan_dirty()
        offsets = self._map_keys(aborted, largest_batch, dirty_records)
        end_offset = offsets.latest_offset + 1
        sizes = self._sizes()
        sources = [segment for segment in sizes if segment.base_offset < end_offset]
        groups = group(sources, job.upper_bound, job.segment_bytes, job.segment_index_bytes)
        ends = {job.upper_bound, *(members[0].base_offset for members in groups)}
        ends.update(segment.base_offset for segment in sizes[len(sources) :])
        rules = Rules(job.now_ms, job.delete_retention_ms, frozenset(ends), job.producers)
        keeper = Keeper(rules, offsets, TransactionFilter(aborted))
        for members in groups:
            cleaned(self._clean_group(members, keeper))
        return LogCleaned(
            max(end_offset, job.first_dirty_offset),
            self._read,
            self._kept,
            len(self._unreadable),
            self._unreadable[0] if self._unreadable else -1,
        )

    # Reading

    def _path(self, base_offset: int, suffix: str = LOG_SUFFIX) -> Path:
        return self._job.directory / f"{base_offset:020d}{suffix}"

    def _open(self, base_offset: int, size: int) -> int:
        path = self._path(base_offset)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise SourceChanged(f"{path} is gone") from None
        found = os.fstat(fd).st_size
        if found < size:
            os.close(fd)
            raise SourceChanged(f"{path} has {found} bytes, {size} are expected")
        return fd

    def _sizes(self) -> list[SegmentSizes]:
        """Return the sizes of the segments below the upper bound."""
        return [
            SegmentSizes(
                base, size, self._size_of(base, OFFSET_INDEX_SUFFIX), self._size_of(base, TIME_INDEX_SUFFIX)
            )
            for base, size in self._job.segments
            if base < self._job.upper_bound
        ]

    def _size_of(self, base_offset: int, suffix: str) -> int:
        try:
            return self._path(base_offset, suffix).stat().st_size
        except FileNotFoundError:
            raise SourceChanged(f"{self._path(base_offset, suffix)} is gone") from None

    def _headers(self, base: int, size: int) -> Iterator[tuple[int, int, BatchHeader]]:
        """Yield (descriptor, position, header) of the batches of a segment."""
        fd = self._open(base, size)
        try:
            for position, header in walk_file(fd, 0, size, next_offset=base):
                yield fd, position, header
        except BrokenBatch as broken:
            raise self._broken(base, size, broken) from broken
        finally:
            os.close(fd)

    def _broken(self, base: int, size: int, broken: BrokenBatch) -> Exception:
        """Return the error for a broken batch: the file is damaged. Raises SourceChanged if a truncation cut the file
        meanwhile."""
        os.close(self._open(base, size))
        return damage(self._path(base), broken.position, broken.reason)

    def _batches(self, base: int, size: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield each batch with its bytes, valid until the next one. The CRC is checked, since rewriting would hide
        damage under a new CRC."""
        fd = self._open(base, size)
        chunk = self._job.limits.io_buffer_bytes
        held, held_at = memoryview(b""), 0
        try:
            for position, header in walk_file(fd, 0, size, next_offset=base, chunk=4096):
                if position + header.size > held_at + len(held):
                    held, held_at = memoryview(os.pread(fd, max(chunk, header.size), position)), position
                    self._spent(len(held))
                within = position - held_at
                batch = held[within : within + header.size]
                if len(batch) < header.size:
                    raise BrokenBatch(position, "the file ends early")
                try:
                    check_integrity(batch, 0, header)
                except KafkaError as error:
                    raise BrokenBatch(position, error.message) from error
                yield header, batch
        except BrokenBatch as broken:
            raise self._broken(base, size, broken) from broken
        finally:
            os.close(fd)

    # First pass: what is dirty

    def _dirty(self) -> list[tuple[int, int]]:
        """Return the segments that reach above the first dirty offset, below the upper bound."""
        job = self._job
        below = [segment for segment in job.segments if segment[0] < job.upper_bound]
        first = max((n for n, (base, _) in enumerate(below) if base <= job.first_dirty_offset), default=0)
        return below[first:]

    def _scan_dirty(self) -> tuple[list[AbortedRange], int, int]:
        """Return the aborted transactions, the record count of the largest batch, and the count of all records. Only
        headers and markers are read."""
        found = TransactionScan()
        largest = total = 0
        for base, size in self._dirty():
            for fd, position, header in self._headers(base, size):
                _note_transaction(found, fd, position, header)
                count = self._record_count(fd, position, header)
                largest = max(largest, count)
                total += count
            self._spent(0)
        above = [segment for segment in self._job.segments if segment[0] >= self._job.upper_bound]
        for base, size in above:
            # All transactions that began below the upper bound have their markers below the high watermark.
            if not found.open or base >= self._job.high_watermark:
                break
            for fd, position, header in self._headers(base, size):
                if header.base_offset >= self._job.high_watermark or not found.open:
                    break
                if header.is_control:
                    _note_transaction(found, fd, position, header)
        return found.aborted, largest, total

    def _record_count(self, fd: int, position: int, header: BatchHeader) -> int:
        """Return the number of records in a batch. Memory is allocated for their keys, so a count that would need more
        than the limit is only believed if the records are there."""
        if 0 <= header.record_count <= self._job.limits.dedupe_bytes // SLOT_BYTES:
            return header.record_count
        try:
            return len(readable_records(os.pread(fd, header.size, position), header)[1])
        except KafkaError:
            return 0

    # Second pass: the last offset of each key

    def _map_keys(self, aborted: Sequence[AbortedRange], largest_batch: int, dirty_records: int) -> OffsetMap:
        job = self._job
        load = job.limits.load_factor
        # The keys of one batch must fit in any case, otherwise the log would never become clean.
        least = int((largest_batch + 1) / load + 1) * SLOT_BYTES
        needed = int((dirty_records + 1) / load + 1) * SLOT_BYTES
        offsets = OffsetMap(max(least, min(needed, job.limits.dedupe_bytes)), load)
        transactions = TransactionFilter(aborted)
        dirty = self._dirty()
        for number, (base, size) in enumerate(dirty):
            for header, batch in self._batches(base, size):
                if not self._map_batch(offsets, transactions, header, batch):
                    return offsets
            following = dirty[number + 1][0] if number + 1 < len(dirty) else job.upper_bound
            # Offsets without a batch, up to the next segment, are clean.
            offsets.latest_offset = max(offsets.latest_offset, following - 1)
        return offsets

    def _map_batch(
        self, offsets: OffsetMap, transactions: TransactionFilter, header: BatchHeader, batch: memoryview
    ) -> bool:
        """Put the keys of a batch into the map. Returns False if the map is full, so that the rest of the log stays
        dirty."""
        first_dirty, counts = self._job.first_dirty_offset, header.last_offset >= self._job.first_dirty_offset
        if header.is_control:
            if _control_type(batch) is not None:
                transactions.discards_marker(header.producer_id)
            counts = False
        elif header.is_transactional and transactions.discards_data(header.producer_id, header.last_offset):
            counts = False
        if counts and header.record_count:
            put, base_offset = offsets.put, header.base_offset
            for span in _readable_spans(batch, header):
                key, offset = span[5], base_offset + span[4]
                if key is not None and offset >= first_dirty and not put(key, offset):
                    return False
        if header.last_offset >= first_dirty:
            offsets.latest_offset = max(offsets.latest_offset, header.last_offset)
        return True

    # Third pass: what stays

    def _clean_group(self, members: Sequence[SegmentSizes], keeper: Keeper) -> GroupCleaned:
        job = self._job
        out = CleanedSegment(
            job.directory,
            members[0].base_offset,
            job.index_interval_bytes,
            job.limits.io_buffer_bytes,
            self._spent,
        )
        aborted = self._aborted_in(members)
        try:
            for segment in members:
                for header, batch in self._batches(segment.base_offset, segment.size):
                    kept = self._clean_batch(keeper, header, batch)
                    if kept is None:
                        continue
                    out.append(kept)
                    # Readers forget an aborted transaction at its marker, so its index entry goes with the marker.
                    if (
                        header.is_control
                        and header.base_offset in aborted
                        and parse_header(kept).record_count
                    ):
                        out.note_abort(aborted[header.base_offset])
            path = out.finish(self._path(members[-1].base_offset), had_aborts=bool(aborted))
        except (SourceChanged, KafkaError, OSError, MemoryError):
            out.abandon()
            raise
        return GroupCleaned(
            tuple(segment.base_offset for segment in members),
            path,
            sum(segment.size for segment in members),
            out.size,
        )

    def _aborted_in(self, members: Sequence[SegmentSizes]) -> dict[int, AbortedTransaction]:
        """Return the aborted transactions in the indexes of some segments, by the offsets of their markers."""
        found = {}
        for segment in members:
            path = self._path(segment.base_offset, TRANSACTION_INDEX_SUFFIX)
            try:
                entries = decode_transactions(read_if_there(path))
            except ValueError as error:
                raise damage(path, 0, str(error)) from error
            found.update({entry.last_offset: entry for entry in entries})
        return found

    def _clean_batch(
        self, keeper: Keeper, header: BatchHeader, batch: memoryview
    ) -> bytes | memoryview | None:
        """Return the batch itself, a batch with fewer records, its header alone, or None. A batch whose records cannot
        be read stays unchanged."""
        control = _control_type(batch) if header.is_control else None
        judgement = keeper.judge(header, control)
        kept: list[Span] = []
        body = b""
        has_tombstones = False
        if header.record_count and not judgement.drops_records:
            try:
                body, spans = readable_records(batch, header)
            except KafkaError:
                self._unreadable.append(header.base_offset)
                return batch
            kept, has_tombstones = _kept_records(keeper, header, spans)
        self._read += header.record_count
        if not kept:
            if not judgement.stays_empty:
                return None
            return batch if header.record_count == 0 else empty_batch(header)
        self._kept += len(kept)
        horizon = None
        if (has_tombstones or judgement.marker_without_data) and not header.has_delete_horizon:
            horizon = keeper.rules.new_horizon_ms
        if horizon is None and len(kept) == header.record_count:
            return batch
        return reduced_batch(header, body, kept, horizon)


def _readable_spans(batch: memoryview, header: BatchHeader) -> list[Span]:
    """Return the spans of all records, or none if one record cannot be read: then no reader is certain to get the
    records before it."""
    try:
        return readable_records(batch, header)[1]
    except KafkaError:
        return []


def _kept_records(keeper: Keeper, header: BatchHeader, spans: list[Span]) -> tuple[list[Span], bool]:
    """Return the spans that stay, and whether a tombstone is among them."""
    if header.is_control:
        return spans, False
    base_offset, is_newest = header.base_offset, keeper.is_newest
    keeps_tombstones = keeper.keeps_tombstones(header)
    kept, has_tombstones = [], False
    for span in spans:
        if is_newest(span[5], base_offset + span[4]) and (span[6] or keeps_tombstones):
            kept.append(span)
            has_tombstones |= not span[6]
    return kept, has_tombstones


def _note_transaction(found: TransactionScan, fd: int, position: int, header: BatchHeader) -> None:
    if header.is_control:
        control = _control_type(os.pread(fd, header.size, position))
        if control is not None:
            found.marker(header.producer_id, header.last_offset, aborts=control is ControlType.ABORT)
    elif header.is_transactional:
        found.data(header.producer_id, header.base_offset)


def _control_type(batch: bytes | memoryview) -> ControlType | None:
    """Return the type of a transaction marker; None if the control record is of another kind, missing or unreadable."""
    try:
        control = read_control_record(batch)
    except KafkaError:
        return None
    return None if control is None else control.type

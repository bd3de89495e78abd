"""Search for offsets by timestamp: time index, then offset index, then the headers of a few batches."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from ...protocol.errors import KafkaError
from ...protocol.records.record import decode_records
from ...protocol.records.record_batch import BatchHeader
from .header_walks import HEADERS_SHORT, FirstSince, HeaderWalk, LatestBelow, may_have
from .segments.segment import Segment
from .storage_errors import BrokenBatch, damage, disk_error

if TYPE_CHECKING:
    from .open_log import OpenLog

_COMPRESSED_SHORT_BYTES = 2 * 1024
_SHORT_BYTES = 256 * 1024


class TimestampOffset(NamedTuple):
    """A record found by its timestamp (ms): its offset and its leader epoch."""

    timestamp: int
    offset: int
    leader_epoch: int


_WalkKey = tuple[int, int]
"""Base offset of the segment, and the position where the walk begins; -1 for the latest record."""


@dataclass(slots=True)
class Known:
    """The results of a lookup by timestamp that threads have found: searched batches and walks over headers. The lookup
    is repeated with them."""

    records: dict[tuple[int, int], TimestampOffset | None] = field(default_factory=dict)
    """Found records by the batch's base offset and the timestamp that was looked for."""
    places: dict[_WalkKey, int] = field(default_factory=dict)
    """Positions of the batches that walks have found, or their ends."""

    def go_on_at(self, key: _WalkKey, walk: Callable[[], HeaderWalk]) -> int:
        """Return the byte position that the walk `key` has found in its segment. Raises TakesWalk with a new walk if
        there is no result yet."""
        if key not in self.places:
            raise TakesWalk(key, walk())
        return self.places[key]


class BatchLookup(NamedTuple):
    """The search of one batch for its first record at or after a timestamp and the log start."""

    batch: bytes
    header: BatchHeader
    timestamp: int
    log_start_offset: int

    @property
    def key(self) -> tuple[int, int]:
        """The base offset of the batch and the timestamp, by which `Known.records` has the result."""
        return self.header.base_offset, self.timestamp

    @property
    def is_long(self) -> bool:
        """True if the search may take more than a millisecond: compressed records expand up to a thousand times."""
        return self.header.size > (_COMPRESSED_SHORT_BYTES if self.header.compression else _SHORT_BYTES)

    def find(self) -> TimestampOffset | None:
        """Return the first record of the batch at or after the timestamp and the log start; None if there is none.

        If the records cannot be read, the header stands for them. It claims that the batch has such a record, and the
        result is the batch's base offset.
        """
        header = self.header
        epoch = header.partition_leader_epoch
        stamped_ms = header.max_timestamp if header.is_log_append_time else None
        try:
            for record in decode_records(self.batch):
                found_ms = record.timestamp_ms if stamped_ms is None else stamped_ms
                if found_ms >= self.timestamp and record.offset >= self.log_start_offset:
                    return TimestampOffset(found_ms, record.offset, epoch)
        except KafkaError:
            return TimestampOffset(
                header.max_timestamp, max(header.base_offset, self.log_start_offset), epoch
            )
        return None


class TakesLookup(Exception):
    """The exception that a lookup by timestamp raises for a batch whose records take long to search.

    The lookup must be repeated once the result of `lookup` is `Known`.
    """

    def __init__(self, lookup: BatchLookup) -> None:
        super().__init__(f"the batch at offset {lookup.header.base_offset} has to be gone over")
        self.lookup = lookup


class TakesWalk(Exception):
    """The exception that a lookup by timestamp raises if it has to read many batch headers.

    It must be repeated once the end of the `walk` over them is `Known`.
    """

    def __init__(self, key: _WalkKey, walk: HeaderWalk) -> None:
        super().__init__(f"many batches have to be gone over in the segment at offset {key[0]}")
        self.key = key
        self.walk = walk


def offset_for_timestamp(
    log: OpenLog, timestamp: int, upto_offset: int, known: Known | None = None
) -> TimestampOffset | None:
    """Return the first record below `upto_offset` whose timestamp is at or after `timestamp` (ms), or None.

    Raises KafkaError: KAFKA_STORAGE_ERROR. With `known`, raises TakesLookup for a long batch that is not in it, and
    TakesWalk for many batches.
    """
    log.check_usable()
    found = find_timestamp(log.segment_list.copy(), timestamp, log.log_start_offset, known)
    return None if found is None or found.offset >= upto_offset else found


def max_timestamp_offset(
    log: OpenLog, upto_offset: int | None = None, known: Known | None = None
) -> TimestampOffset | None:
    """Return the record with the largest timestamp below `upto_offset` (None: the log end), or None if there is no
    record.

    Raises KafkaError: KAFKA_STORAGE_ERROR. With `known`, raises TakesLookup for a long batch that is not in it, and
    TakesWalk for many batches.
    """
    log.check_usable()
    return largest_timestamp(
        log.segment_list.copy(),
        log.log_end_offset if upto_offset is None else upto_offset,
        log.log_start_offset,
        known,
    )


def find_timestamp(
    segments: Sequence[Segment], timestamp: int, log_start_offset: int, known: Known | None = None
) -> TimestampOffset | None:
    """Return the first record at or after `log_start_offset` whose timestamp is at or after `timestamp`, or None.

    Raises KafkaError: KAFKA_STORAGE_ERROR.
    """
    for segment in segments:
        segment.load_max_timestamp()
        if segment.max_timestamp < timestamp:
            continue
        below = segment.time_index.lookup(timestamp)
        start = segment.base_offset if below is None else below[1]
        found = _scan(segment, max(start, log_start_offset), timestamp, log_start_offset, known)
        if found is not None:
            return found
    return None


def largest_timestamp(
    segments: Sequence[Segment], upto_offset: int, log_start_offset: int, known: Known | None = None
) -> TimestampOffset | None:
    """Return the first record with the largest timestamp from `log_start_offset` to below `upto_offset`, or None.

    Raises KafkaError: KAFKA_STORAGE_ERROR.
    """
    best: TimestampOffset | None = None
    for segment in segments:
        segment.load_max_timestamp()
        if segment.base_offset >= upto_offset or segment.max_timestamp <= (
            -1 if best is None else best.timestamp
        ):
            continue
        for position, header in _perhaps_latest(segment, upto_offset, log_start_offset, known):
            latest = header.latest_known_ms
            later = best is None or latest > best.timestamp
            if later and latest >= 0 and header.last_offset >= log_start_offset:
                best = _record_in_batch(segment, position, header, latest, log_start_offset, known)
    return best


def _perhaps_latest(
    segment: Segment, upto_offset: int, log_start_offset: int, known: Known | None
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield batches of which one has the largest timestamp below `upto_offset`. They are usually few, though a segment
    has millions.

    While records arrive, the latest record of all is above the high watermark. With each entry of the offset index, the
    time index gets the largest timestamp before this entry. So the candidates are the record with that timestamp, and
    the batches after the entry.
    """
    if log_start_offset <= segment.max_timestamp_offset < upto_offset:
        yield from islice(_batches_from(segment, segment.max_timestamp_offset), 1)
        return
    start = max(segment.base_offset, log_start_offset)
    told = segment.time_index.last_below(upto_offset)
    if told is not None and told[1] >= start:
        for position, header in islice(_batches_from(segment, told[1]), 1):
            if header.base_offset >= start:
                yield position, header
                indexed = segment.offset_index.lookup(upto_offset - 1)
                start = max(told[1] + 1, 0 if indexed is None else indexed[0])
    for count, (position, header) in enumerate(_batches_from(segment, start)):
        if header.base_offset >= upto_offset:
            return
        if known is not None and count == HEADERS_SHORT:
            walk = partial(LatestBelow, segment, position, upto_offset, log_start_offset)
            for position, header in islice(
                _batches_at(segment, known.go_on_at((segment.base_offset, -1), walk)), 1
            ):
                if header.base_offset < upto_offset:
                    yield position, header
            return
        yield position, header


def _scan(
    segment: Segment, offset: int, timestamp: int, log_start_offset: int, known: Known | None
) -> TimestampOffset | None:
    for position, header in _batches_since(segment, offset, timestamp, log_start_offset, known):
        found = _record_in_batch(segment, position, header, timestamp, log_start_offset, known)
        if found is not None:
            return found
    return None


def _batches_since(
    segment: Segment, offset: int, timestamp: int, log_start_offset: int, known: Known | None
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield the batches from `offset` on that may have a record at or after `timestamp` and the log start.

    With `known`, a walk over many headers is left to a thread: TakesWalk is raised.
    """
    place = segment.find(offset)
    start = segment.size if place is None else place[0]
    left = HEADERS_SHORT
    while True:
        for position, header in _batches_at(segment, start):
            if known is not None and left <= 0 and position != start:
                break
            left -= 1
            if may_have(header, timestamp, log_start_offset):
                yield position, header
        else:
            return
        walk = partial(FirstSince, segment, position, timestamp, log_start_offset)
        start = known.go_on_at((segment.base_offset, position), walk)


def _batches_from(segment: Segment, offset: int) -> Iterator[tuple[int, BatchHeader]]:
    found = segment.find(offset)
    if found is not None:
        yield from _batches_at(segment, found[0])


def _batches_at(segment: Segment, position: int) -> Iterator[tuple[int, BatchHeader]]:
    try:
        yield from segment.walk(position, segment.base_offset)
    except BrokenBatch as broken:
        raise damage(segment.path, broken.position, broken.reason) from broken


def _record_in_batch(
    segment: Segment,
    position: int,
    header: BatchHeader,
    timestamp: int,
    log_start_offset: int,
    known: Known | None,
) -> TimestampOffset | None:
    """Return the first record of a batch at or after `timestamp` and the log start.

    Records are decoded only here, of one batch, as the answer is a record and headers do not suffice.
    """
    epoch = header.partition_leader_epoch
    # Compaction removes records, and may replace the base timestamp by a delete horizon.
    whole = header.record_count == header.last_offset_delta + 1 and not header.has_delete_horizon
    if whole and header.is_log_append_time:
        return TimestampOffset(header.max_timestamp, max(header.base_offset, log_start_offset), epoch)
    if whole and header.base_timestamp >= timestamp and header.base_offset >= log_start_offset:
        return TimestampOffset(header.base_timestamp, header.base_offset, epoch)
    if known is not None and (header.base_offset, timestamp) in known.records:
        return known.records[header.base_offset, timestamp]
    descriptor = segment.descriptor()
    try:
        batch = os.pread(descriptor.fd, header.size, position)
    except OSError as error:
        raise disk_error("read", segment.path, error) from error
    finally:
        descriptor.release()
    lookup = BatchLookup(batch, header, timestamp, log_start_offset)
    if known is not None and lookup.is_long:
        raise TakesLookup(lookup)
    return lookup.find()

"""Reading of a partition's records from its chain of segments, in the order of offsets."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import Final, NamedTuple

from ...protocol.records.record_batch import HEADER_SIZE, LOG_OVERHEAD
from ..failures import ObjectDamaged
from .chains import Chain
from .loaded_segments import LoadedSegments
from .names import SegmentName

READ_BYTES: Final = 4 << 20
"""The most bytes of one read, apart from a larger batch."""
SEGMENTS_AT_ONCE: Final = 64
"""The most segments of one read. A partition that is rarely written to has many small segments."""
_BATCH: Final = Struct(">qi11xi")
"""The fields of a batch that a walk needs: base offset, length after these fields, and the last record's number."""


@dataclass(slots=True)
class ReadBatches:
    """Whole batches of a partition, as views of its segments."""

    next_offset: int
    """The offset after the last batch."""
    pieces: list[memoryview] = field(default_factory=list)
    size: int = 0
    """The bytes of all pieces."""

    def add(self, piece: memoryview, next_offset: int) -> None:
        """Add batches that end at an offset."""
        self.pieces.append(piece)
        self.size += len(piece)
        self.next_offset = next_offset


class _Place(NamedTuple):
    """An offset that a read has reached, and the position of its batch in a segment."""

    offset: int
    segment: SegmentName
    position: int


class ChainReader:
    """A reader of one partition.

    Reads that continue where the last read ended are the usual case. Another offset is looked for from the beginning of
    its segment.
    """

    def __init__(self, chain: Chain, segments: LoadedSegments) -> None:
        self._chain: Sequence[SegmentName] = chain.segments
        self._segments = segments
        self._ends = [segment.end for segment in chain.segments]
        self._passed = 0
        """The number of segments whose records the other side has."""
        self._place: _Place | None = None

    def is_loaded(self, offset: int) -> bool:
        """Return whether the segment of an offset is in memory, or being read."""
        index = self._index(offset)
        return index < len(self._chain) and self._chain[index] in self._segments

    def pass_to(self, offset: int) -> None:
        """Forget the segments that end at an offset, or before it: the other side has their records."""
        index = self._index(offset)
        for segment in self._chain[self._passed : index]:
            self._segments.drop(segment)
        self._passed = max(self._passed, index)

    def read_ahead(self, offset: int, size: int) -> int:
        """Begin to read the segments of the next `size` bytes from an offset on. Returns the bytes of those that are in
        memory, or being read."""
        found = 0
        for segment, left in self._next_segments(offset, size):
            if not self._segments.read_ahead(segment):
                break
            found += left
        return found

    def size_at(self, offset: int, size: int) -> int:
        """Return the number of bytes that a read of `size` bytes finds, without the gap before the next batch."""
        return min(size, sum(left for _, left in self._next_segments(offset, size)))

    async def read(self, offset: int, size: int = READ_BYTES) -> ReadBatches:
        """Return whole batches from an offset on: `size` bytes at most, or one larger batch. There are none at the end
        of the partition.

        Raises ObjectDamaged and ObjectMissing if the backup is damaged, and ObjectStoreFailed.
        """
        needed = [segment for segment, _ in self._next_segments(offset, size)]
        loaded = await asyncio.gather(*(self._segments.get(segment) for segment in needed))
        found = ReadBatches(offset)
        for segment, data in zip(needed, loaded, strict=True):
            position = self._position(found.next_offset, segment, data)
            end, next_offset = _batches_in(segment, data, position, size - found.size)
            if end > position + size - found.size and found.pieces:
                break
            found.add(memoryview(data)[position:end], next_offset)
            self._place = _Place(next_offset, segment, end)
            if end < len(data):
                break
        return found

    def _index(self, offset: int) -> int:
        """Return the index of the first segment that has the offset, or records after it."""
        return bisect_right(self._ends, offset)

    def _next_segments(self, offset: int, size: int) -> Iterator[tuple[SegmentName, int]]:
        """Yield the segments of the next `size` bytes from an offset on, each with its bytes that are not read yet.

        The end of a segment ends them, too, once they are half of `size`: another segment would need its memory for a
        few bytes.
        """
        first, found = self._index(offset), 0
        for segment in self._chain[first : first + SEGMENTS_AT_ONCE]:
            left = self._segments.sizes[segment]
            place = self._place
            if place is not None and (place.offset, place.segment) == (offset, segment):
                left -= place.position
            yield segment, left
            found += left
            if 2 * found >= size:
                return

    def _position(self, offset: int, segment: SegmentName, data: bytes) -> int:
        """Return the position of the first batch with records from `offset` on."""
        place = self._place
        if place is not None and (place.offset, place.segment) == (offset, segment):
            return place.position
        position = 0
        while position < len(data):
            size, next_offset = _batch_at(segment, data, position)
            if next_offset > offset:
                break
            position += size
        return position


def _batches_in(segment: SegmentName, data: bytes, position: int, size: int) -> tuple[int, int]:
    """Return the end of the batches from a position on, of `size` bytes at most or one batch, and the offset after
    them."""
    if len(data) - position <= size:
        return len(data), segment.end
    end, next_offset = position, segment.first
    while end < len(data):
        batch, after = _batch_at(segment, data, end)
        if end > position and end + batch > position + size:
            break
        end, next_offset = end + batch, after
    return end, next_offset


def _batch_at(segment: SegmentName, data: bytes, position: int) -> tuple[int, int]:
    """Return the size of the batch at a position, and the offset after it. Raises ObjectDamaged if it cannot be whole,
    although the digest is right."""
    if len(data) - position >= HEADER_SIZE:
        base_offset, length, last = _BATCH.unpack_from(data, position)
        size = length + LOG_OVERHEAD
        if HEADER_SIZE <= size <= len(data) - position:
            return size, base_offset + last + 1
    raise ObjectDamaged(f"the object {segment.key} is wrong: it has no whole batch at byte {position}")

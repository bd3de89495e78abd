"""Reading of a partition's records from its chain of segments, in the order of offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from hashlib import sha256
from typing import Final

from ...protocol.errors import KafkaError
from ...protocol.records.record_batch import HEADER_SIZE, parse_header, walk_batches
from ..failures import ObjectDamaged
from ..objects.store import ObjectStore
from .chains import Chain
from .cut_file import BackedPartition
from .names import SegmentName

READ_BYTES: Final = 1 << 20
"""The most bytes of one read, apart from a larger batch."""


class ChainReader:
    """A reader of one partition. Segments that it has read whole are compared with their digests.

    Reads that continue where the last one ended are the usual case. Another offset begins its segment anew.
    """

    def __init__(
        self, store: ObjectStore, partition: BackedPartition, chain: Chain, sizes: Mapping[SegmentName, int]
    ) -> None:
        """`sizes` has the bytes of each segment's object."""
        self.partition = partition
        self.unread = set(chain.segments)
        """The segments that were not yet read whole, and compared with their digests."""
        self._store = store
        self._chain = chain.segments
        self._sizes = sizes
        self._one_at_a_time = asyncio.Lock()
        self._index = 0
        self._position = 0
        self._digest = sha256()
        self._next_offset = -1

    async def read(self, offset: int) -> bytes:
        """Return whole batches from an offset on, some megabytes at most; empty at the end of the partition.

        Raises ObjectDamaged and ObjectMissing if the backup is damaged, and ObjectStoreFailed.
        """
        async with self._one_at_a_time:
            if offset != self._next_offset:
                self._seek(offset)
            while self._index < len(self._chain):
                batches = await self._read_on(offset)
                if batches:
                    return batches
            return b""

    def _seek(self, offset: int) -> None:
        """Begin the first segment that has the offset, or records after it."""
        self._index = next(
            (index for index, segment in enumerate(self._chain) if segment.end > offset), len(self._chain)
        )
        self._position, self._digest, self._next_offset = 0, sha256(), offset

    async def _read_on(self, offset: int) -> bytes:
        """Return the next batches of the present segment with records from `offset` on; empty if they end before it."""
        segment = self._chain[self._index]
        data = await self._piece(segment)
        size = skipped = 0
        end = offset
        try:
            for position, header in walk_batches(data, partial_tail=True):
                size, end = position + header.size, max(end, header.next_offset)
                if header.next_offset <= offset:
                    skipped = size
        except KafkaError as error:
            raise ObjectDamaged(f"the object {segment.key} is wrong: {error.message}") from error
        if size == 0:
            raise ObjectDamaged(f"the object {segment.key} is wrong: it ends within a batch")
        self._digest.update(memoryview(data)[:size])
        self._position += size
        self._next_offset = end
        if self._position == self._sizes[segment]:
            if self._digest.hexdigest() != segment.sha256:
                self._next_offset = -1  # The next read finds the damage again.
                raise ObjectDamaged(f"the object {segment.key} is wrong: its SHA-256 is another")
            self.unread.discard(segment)
            self._index += 1
            self._position, self._digest = 0, sha256()
        return data[skipped:size]

    async def _piece(self, segment: SegmentName) -> bytes:
        """Return the next bytes of a segment, with at least one whole batch if there is one."""
        left = self._sizes[segment] - self._position
        if left < HEADER_SIZE:
            raise ObjectDamaged(f"the object {segment.key} is wrong: it ends within a batch")
        data = await self._store.get(segment.key, self._position, self._position + min(READ_BYTES, left))
        needed = parse_header(data).size if len(data) >= HEADER_SIZE else 0
        if len(data) < needed <= left:
            data = await self._store.get(segment.key, self._position, self._position + needed)
        return data

"""Segments in memory. Each is read whole, and compared with its digest before one of its bytes is used.

Reads are under way in parallel, and may begin before their bytes are needed. The memory of all segments is bounded: the
segments that were used longest ago make room.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from ...network.threads import in_thread
from ..failures import ObjectDamaged
from ..objects.store import ObjectStore
from .names import SegmentName

OBJECT_BYTES_MAX: Final = 2 << 30
"""The most bytes of a segment that are read. A segment is larger than 12 MiB only if one batch is."""
LOADED_BYTES_MAX: Final = 32 << 20
"""The most bytes of segments that are kept, apart from those that are needed at the same moment."""
LOADS_AT_ONCE: Final = 4
IDLE_S: Final = 5.0
"""The time after which an unused segment gives way to a segment that is read ahead. Its reader may be gone."""
_ATTEMPTS: Final = 2
"""The number of times that an object is read before it counts as damaged, since bytes may be damaged on their way."""


async def read_segment(store: ObjectStore, name: SegmentName, size: int) -> bytes:
    """Return the bytes of a segment, as they were written. `size` is the size of its object in bytes.

    Raises ObjectDamaged for other bytes, ObjectMissing, and ObjectStoreFailed.
    """
    if size > OBJECT_BYTES_MAX:
        raise ObjectDamaged(f"the object {name.key} is wrong: it has {size} bytes, more than any segment")
    for _ in range(_ATTEMPTS):
        data = await store.get(name.key, 0, max(1, size + 1))
        if await in_thread(_digest, data) == name.sha256:
            return data
    raise ObjectDamaged(f"the object {name.key} is wrong: its SHA-256 is another")


def _digest(data: bytes) -> str:
    return sha256(data).hexdigest()


@dataclass(slots=True)
class _Load:
    task: asyncio.Task[bytes]
    used_s: float
    """The loop time of the last use."""


class LoadedSegments:
    """The segments in memory, and those that are being read. One writer: the event loop. Ends with `close`."""

    def __init__(
        self, store: ObjectStore, sizes: Mapping[SegmentName, int], bytes_max: int = LOADED_BYTES_MAX
    ) -> None:
        """`sizes` has the bytes of each segment's object."""
        self.sizes = sizes
        self.checked: set[SegmentName] = set()
        """The segments that were read, and compared with their digests."""
        self._store = store
        self._bytes_max = bytes_max
        self._loads: OrderedDict[SegmentName, _Load] = OrderedDict()
        """The segments, from the segment that was used longest ago."""
        self._size = 0
        self._slots = asyncio.Semaphore(LOADS_AT_ONCE)

    def __contains__(self, segment: SegmentName) -> bool:
        """Return whether a segment is in memory, or being read."""
        return segment in self._loads

    async def get(self, segment: SegmentName) -> bytes:
        """Return the bytes of a segment. Raises as `read_segment` does; the next call reads it again."""
        load = self._loads.get(segment)
        if load is None:
            self._make_room(self.sizes[segment], idle_s=0)
            load = self._begin(segment)
        self._used(segment, load)
        try:
            # Another reader of the segment goes on if this one is cancelled.
            return await asyncio.shield(load.task)
        except Exception:
            if self._loads.get(segment) is load:
                self.drop(segment)
            raise

    def read_ahead(self, segment: SegmentName) -> bool:
        """Begin to read a segment, if there is room for it. Returns whether it is in memory, or being read."""
        if segment in self._loads:
            return True
        if not self._make_room(self.sizes[segment], idle_s=IDLE_S):
            return False
        self._used(segment, self._begin(segment))
        return True

    def drop(self, segment: SegmentName) -> None:
        """Forget a segment that is not needed again."""
        if self._loads.pop(segment, None) is not None:
            self._size -= self.sizes[segment]

    def close(self) -> None:
        """End all reads."""
        for load in self._loads.values():
            load.task.cancel()
        self._loads.clear()
        self._size = 0

    def _begin(self, segment: SegmentName) -> _Load:
        task = asyncio.get_running_loop().create_task(self._load(segment), name=f"read {segment.key}")
        # A read ahead that fails is not awaited. The read that needs the segment begins anew.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        load = self._loads[segment] = _Load(task, 0.0)
        self._size += self.sizes[segment]
        return load

    async def _load(self, segment: SegmentName) -> bytes:
        async with self._slots:
            data = await read_segment(self._store, segment, self.sizes[segment])
        self.checked.add(segment)
        return data

    def _used(self, segment: SegmentName, load: _Load) -> None:
        load.used_s = asyncio.get_running_loop().time()
        self._loads.move_to_end(segment)

    def _make_room(self, size: int, idle_s: float) -> bool:
        """Drop segments that were read, and were not used for `idle_s`, until there is room. Returns whether there
        is."""
        before_s = asyncio.get_running_loop().time() - idle_s
        room = self._bytes_max - self._size - size
        dropped: list[SegmentName] = []
        for segment, load in self._loads.items():
            if room >= 0 or load.used_s > before_s:
                break
            if load.task.done():
                dropped.append(segment)
                room += self.sizes[segment]
        for segment in dropped:
            self.drop(segment)
        return room >= 0

"""The file `.timeindex`: positions in a segment where a search for a timestamp can start."""

from __future__ import annotations

import struct
from pathlib import Path

from .descriptors import FileCache
from .sparse_index import SparseIndex

_ENTRY = struct.Struct(">qi")  # largest timestamp so far in ms, offset relative to the segment's base


class TimeIndex(SparseIndex):
    """The time index of a segment: its entries have the largest timestamp so far (ms), and the last offset of the batch
    with that timestamp."""

    __slots__ = ("_base_offset",)

    def __init__(self, path: Path | str, base_offset: int, files: FileCache) -> None:
        super().__init__(path, _ENTRY, files)
        self._base_offset = base_offset

    def append_if_later(self, timestamp: int, offset: int) -> None:
        """Add an index entry if `timestamp` (ms) is above the last entry's. A negative timestamp stands for none."""
        if timestamp < 0:
            return
        last = self.last_fields()
        if last is None or timestamp > last[0]:
            self.add(timestamp, offset - self._base_offset)

    def lookup(self, timestamp: int) -> tuple[int, int] | None:
        """Return (timestamp, offset) of the last index entry at or below `timestamp` (ms); None if there is no such
        entry."""
        return self._absolute(self.last_until(timestamp, 0))

    def last_below(self, offset: int) -> tuple[int, int] | None:
        """Return (timestamp in ms, offset) of the last index entry below `offset`; None if there is none."""
        return self._absolute(self.last_until(offset - self._base_offset - 1, 1))

    def last(self) -> tuple[int, int] | None:
        return self._absolute(self.last_fields())

    def truncate(self, offset: int) -> None:
        """Drop the index entries at or above `offset`, since the log is truncated there."""
        self.keep(self.find(offset - self._base_offset - 1, 1) + 1)

    def _absolute(self, entry: tuple[int, ...] | None) -> tuple[int, int] | None:
        if entry is None:
            return None
        timestamp, relative = entry
        return timestamp, relative + self._base_offset

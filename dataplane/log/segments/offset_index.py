"""The file `.index`: positions in a segment where a search for an offset can start."""

from __future__ import annotations

import struct
from pathlib import Path

from .descriptors import FileCache
from .sparse_index import SparseIndex

_ENTRY = struct.Struct(">ii")  # offset relative to the segment's base, byte position


class OffsetIndex(SparseIndex):
    """An index whose entries have the last offset of a batch, and the position where that batch starts."""

    __slots__ = ("_base_offset",)

    def __init__(self, path: Path | str, base_offset: int, files: FileCache) -> None:
        super().__init__(path, _ENTRY, files)
        self._base_offset = base_offset

    def append(self, last_offset: int, position: int) -> None:
        self.add(last_offset - self._base_offset, position)

    def lookup(self, offset: int) -> tuple[int, int] | None:
        """Return (last offset, position) of the last entry at or below `offset`."""
        return self._absolute(self.last_until(offset - self._base_offset, 0))

    def lookup_position(self, position: int) -> tuple[int, int] | None:
        """Return (last offset, position) of the last entry that starts at or below `position`."""
        return self._absolute(self.last_until(position, 1))

    def last_offset_from(self, position: int) -> int | None:
        """Return the last offset of the first entry that starts at or above `position`; None if none exists."""
        number = self.find(position - 1, 1) + 1
        return None if number >= len(self) else self.entry(number)[0] + self._base_offset

    def last(self) -> tuple[int, int] | None:
        return self._absolute(self.last_fields())

    def truncate(self, offset: int) -> None:
        """Drop the index entries at or above `offset`, since the log is truncated there."""
        self.keep(self.find(offset - self._base_offset - 1, 0) + 1)

    def _absolute(self, entry: tuple[int, ...] | None) -> tuple[int, int] | None:
        if entry is None:
            return None
        relative, position = entry
        return relative + self._base_offset, position

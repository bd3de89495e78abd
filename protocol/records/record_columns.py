"""Records as columns, in Arrow's layout, in Python. `_columns.c` implements the same names."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple


class BlobColumn(NamedTuple):
    """A column of record keys or values as Arrow's variable-length binary.

    `ends` are int32 numbers: 0, then the end of each value in `data`. `valid` has a bit for each value that is not
    null, the lowest bit first; None if no value is null.
    """

    nulls: int
    valid: bytes | None
    ends: bytes
    data: bytes


class ColumnBuffers(NamedTuple):
    """The buffers of collected records, one column for each field of a record. Numbers are int64 in the machine's byte
    order, timestamps are in ms since 1970."""

    rows: int
    offsets: bytes
    timestamps: bytes
    keys: BlobColumn
    values: BlobColumn
    headers: list[Sequence[tuple[str, bytes | None]]] | None
    """Headers of each row; None if they were not asked for."""


class Columns:
    """A collector of records as columns: `RecordCursor.take_into` adds records until `finish` returns the columns."""

    __slots__ = ("_headers", "_keys", "_offsets", "_timestamps", "_values", "size")

    def __init__(self, *, with_headers: bool = False) -> None:
        self._offsets = array("q")
        self._timestamps = array("q")
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._headers: list[Any] | None = [] if with_headers else None
        self.size = 0
        """Size of keys and values together, in bytes."""

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self._offsets)

    @property
    def last_offset(self) -> int:
        """Offset of the last collected record; -1 while there is none."""
        return self._offsets[-1] if self._offsets else -1

    def extend(self, records: Sequence[tuple[Any, ...]]) -> None:
        """Add records, each as a sequence of offset, timestamp, key, value, headers."""
        for offset, timestamp_ms, key, value, headers in records:
            self._offsets.append(offset)
            self._timestamps.append(timestamp_ms)
            self._keys.append(key)
            self._values.append(value)
            self.size += len(key or b"") + len(value or b"")
            if self._headers is not None:
                self._headers.append(headers)

    def finish(self) -> tuple[Any, ...]:
        """Return all collected records as the fields of ColumnBuffers, with columns as the fields of BlobColumn; the
        collection is empty afterwards.

        Raises OverflowError if keys or values have 2 GiB or more.
        """
        columns = (
            self.rows,
            self._offsets.tobytes(),
            self._timestamps.tobytes(),
            _column(self._keys),
            _column(self._values),
            self._headers,
        )
        Columns.__init__(self, with_headers=self._headers is not None)
        return columns


def _column(blobs: list[bytes | None]) -> tuple[int, bytes | None, bytes, bytes]:
    ends = array("i", [0])
    position = nulls = 0
    valid = bytearray(-(-len(blobs) // 8))
    for row, blob in enumerate(blobs):
        if blob is None:
            nulls += 1
        else:
            valid[row >> 3] |= 1 << (row & 7)
            position += len(blob)
        ends.append(position)
    data = b"".join(blob for blob in blobs if blob)
    return nulls, bytes(valid) if nulls else None, ends.tobytes(), data


def column_buffers(fields: tuple[Any, ...]) -> ColumnBuffers:
    """Return the result of `Columns.finish`, of either codec, as named tuples."""
    rows, offsets, timestamps, keys, values, headers = fields
    return ColumnBuffers(rows, offsets, timestamps, BlobColumn(*keys), BlobColumn(*values), headers)

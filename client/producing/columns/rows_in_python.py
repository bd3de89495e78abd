"""The encoding of columns into batches, in Python. `_rows.c` has the same names in C."""

from __future__ import annotations

from array import array
from typing import Final

from ....protocol.records.record_codec import encode_record
from ....protocol.wire.primitives import Buffer
from ..partitioner import murmur2_partition
from ..pending import RECORD_OVERHEAD

BlobBuffers = tuple[int, Buffer | None, Buffer, Buffer | None, bool]
"""Keys or values in Arrow's layout.

The parts are: the first row; a validity bitmap; the offsets of the rows, and of the end; the data; and True if the
offsets are int64, not int32.
"""
EncodedRows = tuple[bytes, int, int, int, int]
"""The body of a batch, its number of records, their first and highest timestamp, their estimated bytes."""
_NO_HEADERS: Final = b"\0"


class Rows:
    """The rows of some columns. They are read on demand, and not copied before."""

    def __init__(
        self,
        count: int,
        keys: BlobBuffers | None,
        values: BlobBuffers | None,
        stamps: Buffer | int,
        headers: list[bytes | None] | None = None,
    ) -> None:
        """Keep the buffers of `count` rows.

        `stamps`: int64 timestamps in ms since 1970, or one for all rows. `headers`: encoded as in a record. Raises
        ValueError for columns shorter than `count`.
        """
        self._count = count
        self._keys = None if keys is None else _Blobs(keys, count)
        self._values = None if values is None else _Blobs(values, count)
        if isinstance(stamps, int):
            self._stamps: memoryview | array[int] = array("q", [stamps]) * count
        else:
            whole = memoryview(stamps).cast("B")
            self._stamps = whole[: len(whole) // 8 * 8].cast("q")
        if len(self._stamps) < count:
            raise ValueError(f"a column has less than its {count} rows")
        self._headers = headers

    def first_above(self, limit: int) -> tuple[int, int] | None:
        """Return the first row that takes more than `limit` bytes, and its size; None if there is none.

        Raises ValueError, like all methods, for a row that lies outside its column's data.
        """
        for row in range(self._count):
            if (size := self._size(row)) > limit:
                return row, size
        return None

    def by_hash(self, partitions: int) -> bytearray:
        """Return the partition of each row, int32, by its key's hash; -1 for a row without key."""
        chosen = array("i")
        for row in range(self._count):
            key = None if self._keys is None else self._keys.read(row)
            chosen.append(-1 if key is None else murmur2_partition(key, partitions))
        return bytearray(chosen.tobytes())

    def fill(self, chosen: bytearray, row: int, partition: int, left: int) -> tuple[int, int]:
        """Assign `partition` to rows without one, from `row` on, until they use up `left` bytes.

        Returns the next row without partition, or the number of rows, and the bytes left.
        """
        with memoryview(chosen).cast("i") as of:
            while row < self._count and left > 0:
                if of[row] < 0:
                    of[row] = partition
                    left -= self._size(row)
                row += 1
            while row < self._count and of[row] >= 0:
                row += 1
        return row, left

    def encode(self, order: Buffer, at: int, limit: int) -> EncodedRows:
        """Return a body with the rows `order[at]` and on, int32, up to `limit` bytes, but at least one row.

        Raises OverflowError if their timestamps are too far apart.
        """
        rows = memoryview(order).cast("B").cast("i")[at:]
        if not len(rows):
            raise ValueError("a batch holds one record or more")
        parts: list[bytes] = []
        size = 0
        first_ms = last_ms = self._stamps[rows[0]]
        for delta, row in enumerate(rows):
            more = self._size(row)
            if delta and size + more > limit:
                break
            key, value, headers = self._read(row)
            stamp_ms = self._stamps[row]
            parts.append(encode_record(key, value, headers, stamp_ms - first_ms, delta))
            size += more
            last_ms = max(last_ms, stamp_ms)
        return b"".join(parts), len(parts), first_ms, last_ms, size

    def _read(self, row: int) -> tuple[bytes | None, bytes | None, bytes]:
        key = None if self._keys is None else self._keys.read(row)
        value = None if self._values is None else self._values.read(row)
        headers = None if self._headers is None else self._headers[row]
        return key, value, headers or _NO_HEADERS

    def _size(self, row: int) -> int:
        key, value, headers = self._read(row)
        return RECORD_OVERHEAD + len(key or b"") + len(value or b"") + len(headers) - 1


class _Blobs:
    def __init__(self, buffers: BlobBuffers, count: int) -> None:
        self._first, valid, ends, data, wide = buffers
        self._valid = None if valid is None else memoryview(valid).cast("B")
        width = 8 if wide else 4
        whole = memoryview(ends).cast("B")
        last = self._first + count
        if len(whole) < (last + 1) * width or (
            self._valid is not None and len(self._valid) < (last + 7) // 8
        ):
            raise ValueError(f"a column has less than its {count} rows")
        self._ends = whole[: (last + 1) * width].cast("q" if wide else "i")
        self._data = memoryview(b"" if data is None else data).cast("B")

    def read(self, row: int) -> bytes | None:
        at = self._first + row
        if self._valid is not None and not self._valid[at >> 3] >> (at & 7) & 1:
            return None
        begin, end = self._ends[at], self._ends[at + 1]
        if not 0 <= begin <= end <= len(self._data):
            raise ValueError(f"row {row}: its column says that it lies outside of the data")
        return bytes(self._data[begin:end])


def rows_by_partition(chosen: Buffer, partitions: int) -> dict[int, bytes]:
    """Return the rows of each partition, int32, in their order. `chosen`: the partition of each row.

    Raises ValueError for a partition that does not exist.
    """
    found: dict[int, array[int]] = {}
    for row, partition in enumerate(memoryview(chosen).cast("B").cast("i")):
        if not 0 <= partition < partitions:
            raise ValueError(f"row {row}: there is no partition {partition} among {partitions}")
        found.setdefault(partition, array("i")).append(row)
    return {partition: found[partition].tobytes() for partition in sorted(found)}

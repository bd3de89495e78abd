"""Search for a batch, in Python. `_batch_search.c` has equivalent functions under the same names, and `batch_search`
uses them if they were built."""

from __future__ import annotations

import mmap

from .batch_walk import walk_file


def count_until(
    entries: bytes | bytearray | mmap.mmap,
    length: int,
    entry_bytes: int,
    at: int,
    field_bytes: int,
    target: int,
    /,
) -> int:
    """Return how many of the first `length` entries, which are sorted, have a field at or below `target`.

    The field is a signed big-endian number of `field_bytes` (4 or 8) bytes, from byte `at` of an entry of `entry_bytes`
    bytes.
    """
    with memoryview(entries) as view:
        low, high = 0, length
        while low < high:
            middle = (low + high) // 2
            field = middle * entry_bytes + at
            if int.from_bytes(view[field : field + field_bytes], "big", signed=True) <= target:
                low = middle + 1
            else:
                high = middle
    return low


def last_boundary(fd: int, start: int, limit: int, end: int, next_offset: int) -> tuple[int, int]:
    """Return the end of the last whole batch within bytes `start` to `limit` of a file (`start` if none fits), and the
    base offset of the batch that follows there, -1 at `end`. Offsets rise from `next_offset` on.

    Raises BrokenBatch at bytes that are not a batch. Raises OSError if the file cannot be read.
    """
    boundary = start
    for position, header in walk_file(fd, start, end, next_offset=next_offset):
        if position + header.size > limit:
            return position, header.base_offset
        boundary = position + header.size
    return boundary, -1

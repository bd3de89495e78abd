"""Search for a batch: in an index, and from header to header.

The implementation is `batch_search_in_python.py`, or its equivalent in C if that was built; OTTLA_PURE_PYTHON=1
disables the C version.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ....protocol.pure_python import PURE_PYTHON
from . import batch_search_in_python

if TYPE_CHECKING:
    from . import _batch_search as _in_c
else:
    try:
        if PURE_PYTHON:
            raise ImportError("the search in C is turned down")
        from . import _batch_search as _in_c
    except ImportError:  # disabled, not built, or built for another Python
        _in_c = None


_CHUNK_BYTES = 4096
"""The distance of index entries in bytes (`index.interval.bytes`), so this is often all that is read."""


def _last_boundary(fd: int, start: int, limit: int, end: int, next_offset: int) -> tuple[int, int]:
    """Return the result of `batch_search_in_python.last_boundary`, which also finds the fault of a damaged file."""
    position, offset, limit = start, next_offset, max(start, limit)
    while position < end:
        held = os.pread(fd, min(_CHUNK_BYTES, end - position), position)
        walked = _in_c.walk_headers(held, position, limit, end, offset)
        if walked is None:
            return batch_search_in_python.last_boundary(fd, start, limit, end, next_offset)
        position, base_offset, offset = walked
        if base_offset >= 0:
            return position, base_offset
    return position, -1


if TYPE_CHECKING or _in_c is not None:
    count_until = _in_c.count_until
    last_boundary = _last_boundary
else:
    count_until = batch_search_in_python.count_until
    last_boundary = batch_search_in_python.last_boundary

__all__ = ["count_until", "last_boundary"]

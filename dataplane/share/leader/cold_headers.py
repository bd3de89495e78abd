"""Reads of record batches into the page cache, in a thread, before a walk over their headers."""

from __future__ import annotations

import os

from ...log import LogSlice
from ...runtime.threads import in_thread

_AHEAD_BYTES = 1024 * 1024


async def read_ahead(records: LogSlice) -> None:
    """Read the beginning of a slice into the page cache, and ask for the rest. Raises OSError."""
    fd, position, size = records.fileno(), records.position, records.size

    def read() -> None:
        os.posix_fadvise(fd, position, size, os.POSIX_FADV_WILLNEED)
        os.pread(fd, min(size, _AHEAD_BYTES), position)

    await in_thread(read)

"""Settings of the C library's memory allocator."""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 64 * 1024 * 1024
_MAPPED_FROM_BYTES = 4 * 1024 * 1024


def keep_freed_memory() -> None:
    """Keep some freed memory for the next use instead of returning it to the kernel.

    Answers of some 64 KB come and go in bursts. By default glibc returns the end of its heap as soon as 128 KB of it
    are free, and the kernel then clears every page again at its next use, which costs more than the copy. Nothing
    changes if the C library has no `mallopt`.
    """
    _set(_M_TRIM_THRESHOLD, _KEPT_BYTES)
    return_large_blocks()


def return_large_blocks() -> None:
    """Return freed blocks of 4 MiB and more to the kernel at once.

    By default glibc raises this limit with the blocks that are freed, up to 32 MiB, and then keeps such blocks for each
    thread. Nothing changes if the C library has no `mallopt`.
    """
    _set(_M_MMAP_THRESHOLD, _MAPPED_FROM_BYTES)


def _set(parameter: int, value: int) -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(parameter, value)

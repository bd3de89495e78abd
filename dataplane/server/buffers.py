"""Receive buffers, pooled by powers of two."""

from __future__ import annotations

import mmap
from typing import Final, TypeAlias

SMALLEST_BYTES: Final = 16 * 1024
# Larger buffers are mapped, so that the kernel commits no memory before bytes arrive in them.
_MAPPED_FROM_BYTES: Final = 4 * 1024 * 1024

Buffer: TypeAlias = bytearray | mmap.mmap


def size_class(size_bytes: int) -> int:
    """Return the pooled size for `size_bytes`: a power of two, at least `SMALLEST_BYTES`."""
    if size_bytes <= SMALLEST_BYTES:
        return SMALLEST_BYTES
    return 1 << (size_bytes - 1).bit_length()


class BufferPool:
    """A pool that lends buffers of power-of-two sizes; the `ReceiveBudget` decides about the allowed memory.

    Fresh buffers of 128 KB and more are mapped and faulted in by every allocation, so they are kept for reuse, up to
    `keep_bytes`.
    """

    def __init__(self, *, keep_bytes: int = 32 * 1024 * 1024) -> None:
        self._keep_bytes = keep_bytes
        self._free: dict[int, list[Buffer]] = {}
        # Invariant: lent_bytes and kept_bytes are the sums over lent and free buffers, never negative.
        self.lent_bytes = 0
        self.kept_bytes = 0

    def acquire(self, size_bytes: int) -> Buffer:
        """Return a buffer of at least `size_bytes` with undefined content."""
        size = SMALLEST_BYTES if size_bytes <= SMALLEST_BYTES else size_class(size_bytes)
        self.lent_bytes += size
        free = self._free.get(size)
        if free:
            self.kept_bytes -= size
            return free.pop()
        if size < _MAPPED_FROM_BYTES:
            return bytearray(size)
        return mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)

    def release(self, buffer: Buffer) -> None:
        """Take back a lent buffer; the caller must hold no view of it."""
        size = len(buffer)
        self.lent_bytes -= size
        if self.kept_bytes + size <= self._keep_bytes:
            self.kept_bytes += size
            self._free.setdefault(size, []).append(buffer)

    def trim(self) -> None:
        """Free half of the kept buffers of every size. Repeated calls empty an idle server's pool."""
        for size, free in self._free.items():
            dropped = (len(free) + 1) // 2
            del free[:dropped]
            self.kept_bytes -= dropped * size

"""Receive buffers, pooled by powers of two, within one budget for the whole server."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

SMALLEST_BYTES = 16 * 1024
# How many of those that wait are told of one large buffer that came back.
_WAKE = 8


def size_class(size_bytes: int) -> int:
    """The pooled size that holds `size_bytes`: a power of two, at least `SMALLEST_BYTES`."""
    if size_bytes <= SMALLEST_BYTES:
        return SMALLEST_BYTES
    return 1 << (size_bytes - 1).bit_length()


class BufferPool:
    """Lends `bytearray`s of power-of-two sizes.

    Fresh buffers of 128 KB and more are mapped and faulted in by every allocation, so they are kept for
    reuse, up to `keep_bytes`. `budget_bytes` bounds what is lent in total: beyond it `acquire` lends only the
    smallest size, so that small requests still pass while peers that announced large ones wait.
    """

    def __init__(self, *, budget_bytes: int, keep_bytes: int = 32 * 1024 * 1024) -> None:
        self._budget_bytes = budget_bytes
        self._keep_bytes = keep_bytes
        self._free: dict[int, list[bytearray]] = {}
        # Invariant: lent_bytes and kept_bytes are the sums over lent and free buffers, never negative.
        self.lent_bytes = 0
        self.kept_bytes = 0
        self._waiting: deque[Callable[[], None]] = deque()

    def acquire(self, size_bytes: int) -> bytearray | None:
        """A buffer of at least `size_bytes`, its content undefined; None when the budget is used up."""
        size = size_class(size_bytes)
        if size > SMALLEST_BYTES and self.lent_bytes + size > self._budget_bytes:
            return None
        self.lent_bytes += size
        free = self._free.get(size)
        if free:
            self.kept_bytes -= size
            return free.pop()
        return bytearray(size)

    def release(self, buffer: bytearray) -> None:
        """Take back a lent buffer; the caller holds no view of it any more."""
        size = len(buffer)
        self.lent_bytes -= size
        if self.kept_bytes + size <= self._keep_bytes:
            self.kept_bytes += size
            self._free.setdefault(size, []).append(buffer)
        if self._waiting and size > SMALLEST_BYTES:
            self.wake(_WAKE)

    def wait(self, callback: Callable[[], None]) -> None:
        """Have `callback()` called once when buffers have come back; it may find that they do not suffice."""
        self._waiting.append(callback)

    def wake(self, count: int) -> None:
        """Call the `count` longest waiting callbacks."""
        for _ in range(min(count, len(self._waiting))):
            self._waiting.popleft()()

    @property
    def waiting(self) -> int:
        """How many wait for buffers."""
        return len(self._waiting)

    def trim(self) -> None:
        """Free half of the kept buffers of every size; it empties an idle server's pool over time."""
        for size, free in self._free.items():
            dropped = (len(free) + 1) // 2
            del free[:dropped]
            self.kept_bytes -= dropped * size

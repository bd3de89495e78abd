"""A limit of the bytes per second that compaction reads and writes."""

from __future__ import annotations

from collections.abc import Callable

_WINDOW_S = 0.3


class CompactionThrottle:
    """A byte counter that, after a third of a second, sleeps until the counted bytes are within the rate."""

    def __init__(
        self, bytes_per_second: float, clock: Callable[[], float], sleep: Callable[[float], None]
    ) -> None:
        """Create a byte counter that allows this rate. `clock` returns seconds, and `sleep` takes seconds."""
        self._rate = bytes_per_second
        self._clock = clock
        self._sleep = sleep
        self._since = clock()
        self._bytes = 0

    def spent(self, size: int) -> None:
        """Count `size` bytes that were read or written, and sleep if they exceed the rate."""
        self._bytes += size
        elapsed = self._clock() - self._since
        if elapsed < _WINDOW_S and self._bytes / self._rate < _WINDOW_S:
            return
        ahead = self._bytes / self._rate - elapsed
        if ahead > 0:
            self._sleep(ahead)
        self._since = self._clock()
        self._bytes = 0

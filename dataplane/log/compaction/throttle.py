"""Holds reading and writing to so many bytes a second."""

from __future__ import annotations

from collections.abc import Callable

_WINDOW_S = 0.3


class CompactionThrottle:
    """Counts bytes; once a third of a second has passed, waits for as long as they should have taken."""

    def __init__(
        self, bytes_per_second: float, clock: Callable[[], float], sleep: Callable[[float], None]
    ) -> None:
        """`clock` and `sleep` in seconds."""
        self._rate = bytes_per_second
        self._clock = clock
        self._sleep = sleep
        self._since = clock()
        self._bytes = 0

    def spent(self, size: int) -> None:
        """`size` bytes were read or written."""
        self._bytes += size
        elapsed = self._clock() - self._since
        if elapsed < _WINDOW_S and self._bytes / self._rate < _WINDOW_S:
            return
        ahead = self._bytes / self._rate - elapsed
        if ahead > 0:
            self._sleep(ahead)
        self._since = self._clock()
        self._bytes = 0

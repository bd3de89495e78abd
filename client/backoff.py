"""The waits between repeated attempts. Pure."""

from __future__ import annotations

FIRST_BACKOFF_MS = 1.0
"""The first wait after a failure; later ones grow. A failed leader is often replaced within milliseconds."""
BACKOFF_GROWTH = 1.2
PARTITION_BACKOFF_MS = 0.005
"""The minimum wait per partition of an attempt: 50 ms for 10,000.

An attempt for very many partitions is expensive for brokers and client.
"""


class Backoff:
    """Waits that grow from 1 ms up to a bound; `reset` after a success."""

    def __init__(self, max_ms: float) -> None:
        self._max_ms = max_ms
        self._next_ms = FIRST_BACKOFF_MS

    def reset(self) -> None:
        """Make the next wait between attempts the shortest again, after a success."""
        self._next_ms = FIRST_BACKOFF_MS

    def next_s(self, partitions: int = 1) -> float:
        """Return the next wait in seconds, before an attempt for this number of partitions."""
        wait_ms = min(self._next_ms, self._max_ms)
        self._next_ms = wait_ms * BACKOFF_GROWTH
        return max(wait_ms, partitions * PARTITION_BACKOFF_MS) / 1000

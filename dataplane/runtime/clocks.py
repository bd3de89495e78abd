"""The two clocks of a broker: a monotonic clock and the wall clock."""

from __future__ import annotations

import time


def monotonic_ms() -> int:
    """Return the milliseconds of a clock that never goes back; its zero point has no meaning."""
    return time.monotonic_ns() // 1_000_000


def wall_ms() -> int:
    """Return the wall-clock time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000

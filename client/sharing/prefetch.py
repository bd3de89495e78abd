"""The number of records that a consumer fetches ahead: those that its program takes in a moment. Pure.

A record that waits in the consumer is locked, so no other member can work on it. If the consumer ends before the
program has taken the record, this delivery counts. So a slow program gets its records singly, and a fast program gets
many at a time.
"""

from __future__ import annotations

from typing import Final

HORIZON_S: Final = 0.5
"""The time for which a fetched record should wait at most before the program takes it, in seconds."""
GROWTH: Final = 4
"""The most by which the number grows from one fetch to the next."""


class Prefetch:
    """The size of the next fetch, from the time that the program took for the records of the last fetches."""

    def __init__(self, most: int) -> None:
        self.size = 1
        self._most = most
        self._taken = 0
        self._since_s: float | None = None
        """The time at which the program began to take records that were there."""

    def arrived(self, now_s: float) -> None:
        """Note that records are there for the program to take."""
        if self._since_s is None:
            self._since_s, self._taken = now_s, 0

    def took(self, count: int) -> None:
        """Note that the program has taken records."""
        self._taken += count

    def ran_dry(self, now_s: float) -> None:
        """Note that the program asks for a record while none is there, and adapt the size."""
        if self._since_s is None or not self._taken:
            return
        took_s = max(now_s - self._since_s, 1e-6)
        fitting = int(self._taken * HORIZON_S / took_s)
        self.size = max(1, min(fitting, self.size * GROWTH, self._most))
        self._since_s = None

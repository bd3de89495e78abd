"""Delays before a process restarts: longer each time, unless the process had run for a while. Pure."""

from __future__ import annotations

from typing import Final

FIRST_DELAY_S: Final = 1.0
LONGEST_DELAY_S: Final = 60.0
STEADY_S: Final = 60.0
"""Seconds of running after which the next failure counts as the first again."""


class Restarts:
    """The restart delays of one process."""

    def __init__(self) -> None:
        self._next_s = FIRST_DELAY_S

    def delay_s(self, ran_s: float) -> float:
        """Return the delay in seconds before the next start, given how long the process ran."""
        if ran_s >= STEADY_S:
            self._next_s = FIRST_DELAY_S
        delay_s = self._next_s
        self._next_s = min(2 * delay_s, LONGEST_DELAY_S)
        return delay_s

"""How long a process that ended waits until it starts again: longer each time, unless it had run for a while. Pure."""

from __future__ import annotations

from typing import Final

FIRST_DELAY_S: Final = 1.0
LONGEST_DELAY_S: Final = 60.0
STEADY_S: Final = 60.0
"""Who has run for so long did not fail at its start: its next failure counts as the first one."""


class Restarts:
    """The delays of one process."""

    def __init__(self) -> None:
        self._next_s = FIRST_DELAY_S

    def delay_s(self, ran_s: float) -> float:
        """How long to wait, after it has run for `ran_s`."""
        if ran_s >= STEADY_S:
            self._next_s = FIRST_DELAY_S
        delay_s = self._next_s
        self._next_s = min(2 * delay_s, LONGEST_DELAY_S)
        return delay_s

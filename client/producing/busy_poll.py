"""Keeps the event loop turning while one short answer is waited for.

A loop that waits lends its processor back, and one without work halts. To wake it takes as long as a broker on the same
machine or next door takes to answer. Hypervisors poll before they halt for the same reason (Linux, Documentation/virt/
kvm/halt-polling.rst), and network stacks before they sleep (`SO_BUSY_POLL`, socket(7)).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


class BusyPoll:
    """Polls while an answer is waited for, if the one before came within `most_s`, and for no longer than that.

    Whatever else is ready in the loop runs meanwhile, as in any turn.
    """

    def __init__(self, most_s: float, clock: Callable[[], float] = time.perf_counter) -> None:
        """`most_s` 0: never. `clock`: seconds; the loop's own may count whole milliseconds."""
        self._most_s = most_s
        self._clock = clock
        self._worth = False
        self._waiting = False
        self._turning = False
        self._since_s = 0.0

    def begin(self) -> None:
        """Something was asked for, and nothing else is to be done before the answer comes."""
        if not self._most_s:
            return
        self._waiting = True
        self._since_s = self._clock()
        if self._worth and not self._turning:
            self._turning = True
            asyncio.get_running_loop().call_soon(self._turn)

    def end(self) -> None:
        """It came, or will not."""
        if self._waiting:
            self._waiting = False
            self._worth = self._clock() - self._since_s <= self._most_s

    def _turn(self) -> None:
        if self._worth and self._waiting and self._clock() - self._since_s <= self._most_s:
            asyncio.get_running_loop().call_soon(self._turn)
        else:
            self._turning = False

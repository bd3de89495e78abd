"""A poll that keeps the event loop running while a short answer is awaited.

A loop that waits yields its processor, and an idle processor halts. To wake it takes as long as a broker on the same
machine or in the same network takes to answer. Hypervisors poll before they halt for the same reason (Linux,
Documentation/virt/kvm/halt-polling.rst), and network stacks before they sleep (`SO_BUSY_POLL`, socket(7)).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


class BusyPoll:
    """A poll during the wait for an answer, if the previous answer came within `most_s`, and for at most that time.

    All other callbacks of the loop run meanwhile, as in any turn.
    """

    def __init__(self, most_s: float, clock: Callable[[], float] = time.perf_counter) -> None:
        """`most_s` is in seconds; 0 disables polling. `clock` returns seconds; the loop's own clock may count whole
        milliseconds."""
        self._most_s = most_s
        self._clock = clock
        self._worth = False
        self._waiting = False
        self._turning = False
        self._since_s = 0.0

    def begin(self) -> None:
        """Begin to measure the wait for an answer, and poll if the previous answer came soon. The caller has no other
        work until the answer comes."""
        if not self._most_s:
            return
        self._waiting = True
        self._since_s = self._clock()
        if self._worth and not self._turning:
            self._turning = True
            asyncio.get_running_loop().call_soon(self._turn)

    def end(self) -> None:
        """End the wait: the answer came, or will not come."""
        if self._waiting:
            self._waiting = False
            self._worth = self._clock() - self._since_s <= self._most_s

    def _turn(self) -> None:
        if self._worth and self._waiting and self._clock() - self._since_s <= self._most_s:
            asyncio.get_running_loop().call_soon(self._turn)
        else:
            self._turning = False

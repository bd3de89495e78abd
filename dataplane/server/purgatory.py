"""The purgatory: requests that are parked until a condition or a deadline. One timer serves all of them, and cancelling
is cheap."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable

_COMPACT_AT = 256


class Parked:
    """A parked request's entry in the purgatory. It is falsy once cancelled or expired."""

    __slots__ = ("_on_expire", "_purgatory", "deadline")

    def __init__(self, purgatory: Purgatory, deadline: float, on_expire: Callable[[], None]) -> None:
        self._purgatory = purgatory
        self.deadline = deadline
        self._on_expire: Callable[[], None] | None = on_expire

    def __bool__(self) -> bool:
        return self._on_expire is not None

    def cancel(self) -> bool:
        """Remove the entry without expiry. Returns True if it was still parked."""
        if self._on_expire is None:
            return False
        self._on_expire = None
        self._purgatory._cancelled()
        return True

    def _take(self) -> Callable[[], None] | None:
        on_expire, self._on_expire = self._on_expire, None
        return on_expire


class Purgatory:
    """The deadlines of all parked requests, on the event loop.

    Most parked requests are answered long before their deadline. So a cancelled entry stays in the heap until its
    deadline, or until cancelled entries are the majority. The loop's timer is set only for the earliest deadline.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # Ordered by deadline; the number keeps entries with equal deadlines in order of arrival.
        self._heap: list[tuple[float, int, Parked]] = []
        self._parked = 0
        self._dead = 0
        self._timer: asyncio.TimerHandle | None = None
        self._armed_for = float("inf")

    def __len__(self) -> int:
        return len(self._heap) - self._dead

    def park(self, deadline: float, on_expire: Callable[[], None]) -> Parked:
        """Call `on_expire()` once at `deadline` (seconds on the loop's clock), never within this call."""
        parked = Parked(self, deadline, on_expire)
        self._parked += 1
        heapq.heappush(self._heap, (deadline, self._parked, parked))
        if deadline < self._armed_for:
            self._arm(deadline)
        return parked

    def close(self) -> None:
        """Drop all parked requests; none of them expires."""
        if self._timer is not None:
            self._timer.cancel()
        self._heap.clear()
        self._dead = 0
        self._armed_for = float("inf")

    def _arm(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._armed_for = deadline
        self._timer = self._loop.call_at(deadline, self._expire)

    def _cancelled(self) -> None:
        self._dead += 1
        if self._dead > _COMPACT_AT and self._dead * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2]]
            heapq.heapify(self._heap)
            self._dead = 0

    def _expire(self) -> None:
        self._timer = None
        self._armed_for = float("inf")
        # The loop's clock has millisecond ticks, so a deadline within the current one is due.
        now = self._loop.time() + 0.001
        due: list[Callable[[], None]] = []
        while self._heap and self._heap[0][0] <= now:
            on_expire = heapq.heappop(self._heap)[2]._take()
            if on_expire is None:
                self._dead -= 1
            else:
                due.append(on_expire)
        for on_expire in due:
            try:
                on_expire()
            except Exception as error:
                self._loop.call_exception_handler(
                    {"message": "a parked request failed as it expired", "exception": error}
                )
        self._rearm()

    def _rearm(self) -> None:
        while self._heap and not self._heap[0][2]:
            heapq.heappop(self._heap)
            self._dead -= 1
        if self._heap and self._heap[0][0] < self._armed_for:
            self._arm(self._heap[0][0])

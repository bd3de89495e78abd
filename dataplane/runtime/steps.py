"""Work in many small steps, a bounded number in each turn of the event loop, so that other tasks have turns in
between."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, Protocol

PER_TURN: Final = 1_000
"""The most steps per turn; a step takes a few microseconds."""


class SoonCaller(Protocol):
    """An event loop that calls a function in its next turn."""

    def call_soon(self, callback: Callable[[], None], /) -> object: ...


class Steps:
    """A queue of work. Each piece of work is an iterator, and one item of it is a step. The pieces are done in the
    order in which they were added, a bounded number of steps in each turn of the event loop.

    A piece of work may go on turns later, when everything has changed. So each step must look at the present state.
    """

    def __init__(self, loop: SoonCaller) -> None:
        self._loop = loop
        self._waiting: deque[Iterator[object]] = deque()
        self._goes_on = False

    def take_on(self, work: Iterator[object]) -> None:
        """Add a piece of work. If no other work waits, its first steps are done within this call: all steps, if they
        are few."""
        self._waiting.append(work)
        if not self._goes_on:
            self._go_on()

    def _go_on(self) -> None:
        self._goes_on, left = True, PER_TURN
        try:
            while left and self._waiting:
                work = self._waiting.popleft()
                left -= sum(1 for _ in islice(work, left))
                if not left:
                    self._waiting.appendleft(work)
        finally:
            # Go on even after a failed step, which ends only its own piece of work.
            self._goes_on = bool(self._waiting)
            if self._goes_on:
                self._loop.call_soon(self._go_on)

    def close(self) -> None:
        """Drop all work that is not done yet."""
        self._waiting.clear()

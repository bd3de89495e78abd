"""Work in many small steps, so many of them in each turn of the event loop: others have a turn in between."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, Protocol

PER_TURN: Final = 1_000
"""Of what takes a few microseconds each."""


class SoonCaller(Protocol):
    """The event loop, as far as it is needed here."""

    def call_soon(self, callback: Callable[[], None], /) -> object: ...


class Steps:
    """Each piece of work is an iterator, of which one item is a step. They are done in the order in which they came.

    What has been taken on may go on turns later, when everything has changed: each step looks at what is there then.
    """

    def __init__(self, loop: SoonCaller) -> None:
        self._loop = loop
        self._waiting: deque[Iterator[object]] = deque()
        self._goes_on = False

    def take_on(self, work: Iterator[object]) -> None:
        """Do this. Where nothing else waits, the first steps are done within this call: all, if they are few."""
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
            # Also where a step has failed: that ends its own work alone.
            self._goes_on = bool(self._waiting)
            if self._goes_on:
                self._loop.call_soon(self._go_on)

    def close(self) -> None:
        """Do nothing more."""
        self._waiting.clear()

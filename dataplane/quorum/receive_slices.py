"""Time slices for payloads that arrive on one connection: a few milliseconds of them in each turn of the event loop.

When a broker dies that led thousands of partitions, megabytes arrive at once. A transport delivers all data that has
arrived, and the data that arrives meanwhile, before any other task has a turn: libuv reads a socket up to 32 times in
one turn.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, Protocol

TURN_S: Final = 0.005
"""Seconds after which a turn ends, once the present payload is delivered."""


class LoopTurns(Protocol):
    """The part of the event loop that is needed here. The loop's own clock is no use: uvloop's stands still within a
    turn."""

    def call_soon(self, callback: Callable[[], None], /) -> object: ...


class Readable(Protocol):
    """The transport whose reading is paused while payloads from it wait."""

    def is_closing(self) -> bool: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


class ReceiveSlices:
    """A queue of payloads that delivers each to `deliver` once and in order, until the transport closes.

    While payloads wait, the transport is not read. So the other end is held up, and this process's memory does not
    fill.
    """

    def __init__(
        self,
        transport: Readable,
        deliver: Callable[[bytes], None],
        loop: LoopTurns,
        now: Callable[[], float] | None = None,
    ) -> None:
        """`now` returns seconds; by default those of the monotonic clock."""
        self._transport = transport
        self._deliver = deliver
        self._loop = loop
        self._now = now or time.monotonic
        self._waiting: deque[bytes] = deque()
        self._is_held = True
        """True before `begin`, and between the end of a turn and the next turn: then no payload is delivered."""

    def begin(self) -> None:
        """Deliver the payloads that were held so far, and from now on all that arrive."""
        self._is_held = False
        self._hand_on()

    def add(self, payloads: Iterable[bytes]) -> None:
        """Queue payloads that have arrived, for delivery in time slices."""
        self._waiting += payloads
        if not self._is_held:
            self._hand_on()

    def _hand_on(self) -> None:
        waiting, now = self._waiting, self._now
        ends_at = now() + TURN_S
        while waiting and not self._transport.is_closing():
            self._deliver(waiting.popleft())
            if now() >= ends_at:
                # Pause even if no payload waits, since there may be more data in the socket.
                self._is_held = True
                self._transport.pause_reading()
                self._loop.call_soon(self._go_on)
                return

    def _go_on(self) -> None:
        self.begin()
        if not self._is_held:
            self._transport.resume_reading()

"""What arrives on one connection, handed on for a few milliseconds in each turn of the loop.

Where a broker dies that led thousands of partitions, megabytes arrive at once. A transport hands on all that has
arrived, and what arrives meanwhile, before anybody else has a turn: libuv reads a socket up to 32 times in one.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, Protocol

TURN_S: Final = 0.005
"""A turn ends with the payload during which this has passed."""


class LoopTurns(Protocol):
    """The event loop, as far as it is needed here. Its own clock does not do: uvloop's stands still within a turn."""

    def call_soon(self, callback: Callable[[], None], /) -> object: ...


class Readable(Protocol):
    """The transport that the payloads come from."""

    def is_closing(self) -> bool: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


class ReceiveSlices:
    """Payloads, each handed to `deliver` once and in order, until the transport closes. While some of them wait nothing
    more is read, so that the other end is held up, and not the memory of this one filled."""

    def __init__(
        self,
        transport: Readable,
        deliver: Callable[[bytes], None],
        loop: LoopTurns,
        now: Callable[[], float] | None = None,
    ) -> None:
        """`now`: seconds, of the monotonic clock if not said otherwise."""
        self._transport = transport
        self._deliver = deliver
        self._loop = loop
        self._now = now or time.monotonic
        self._waiting: deque[bytes] = deque()
        self._is_held = True
        """Nothing is handed on before `begin`, nor between the end of a turn and the next one."""

    def begin(self) -> None:
        """Hand on what has arrived, and from now on what arrives."""
        self._is_held = False
        self._hand_on()

    def add(self, payloads: Iterable[bytes]) -> None:
        """These have arrived."""
        self._waiting += payloads
        if not self._is_held:
            self._hand_on()

    def _hand_on(self) -> None:
        waiting, now = self._waiting, self._now
        ends_at = now() + TURN_S
        while waiting and not self._transport.is_closing():
            self._deliver(waiting.popleft())
            if now() >= ends_at:
                # Also where nothing waits: there may be more in the socket.
                self._is_held = True
                self._transport.pause_reading()
                self._loop.call_soon(self._go_on)
                return

    def _go_on(self) -> None:
        self.begin()
        if not self._is_held:
            self._transport.resume_reading()

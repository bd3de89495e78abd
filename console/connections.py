"""HTTP connections with limits on time, and on number per network, so that silent connections block no others.

A connection waits while no request is under way. When there are too many connections, the one that has waited longest
is closed, among those of the network that has most. A connection is also closed when its request's head does not arrive
in time, and when its browser does not read an answer.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import cast

from uvicorn.protocols.http.h11_impl import H11Protocol

from .addresses import network_of
from .bounds import CONNECTIONS_MAX, CONNECTIONS_OF_NETWORK_MAX, HEAD_S, SEND_S


class BoundedHttp(H11Protocol):
    """An HTTP connection that is closed when its browser makes no progress for too long.

    The limits are HEAD_S for sending a request's head and SEND_S for reading an answer. Uvicorn has a timeout only for
    connections that are idle after an answer.
    """

    _network = ""
    _waits_since_s = 0.0
    _deadline: asyncio.TimerHandle | None = None
    _stall: asyncio.TimerHandle | None = None

    @property
    def is_waiting(self) -> bool:
        """True if the connection has no request under way."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._network = network_of(self.client[0]) if self.client else ""
        self._expect_head()
        if not self._make_room():
            self.limit_concurrency = 0  # The connection is then answered with 503.

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        for timer in (self._deadline, self._stall):
            if timer is not None:
                timer.cancel()

    def handle_events(self) -> None:
        super().handle_events()
        if not self.is_waiting and self._deadline is not None:
            self._deadline.cancel()

    def on_response_complete(self) -> None:
        super().on_response_complete()  # This may start the next request, if it has arrived already.
        if self.is_waiting:
            self._expect_head()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._expect_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stall is not None:
            self._stall.cancel()

    # ------------------------------------------------------------ number

    def _make_room(self) -> bool:
        """Close the connection that has waited longest for a request if the console or this client's network has too
        many connections. Returns False if all of them have a request under way."""
        others = [
            connection for connection in cast("set[BoundedHttp]", self.connections) if connection is not self
        ]
        counts = Counter(connection._network for connection in others)
        if counts[self._network] >= CONNECTIONS_OF_NETWORK_MAX:
            others = [connection for connection in others if connection._network == self._network]
        elif len(others) < CONNECTIONS_MAX:
            return True
        waiting = [connection for connection in others if connection.is_waiting]
        if not waiting:
            return False
        victim = min(
            waiting, key=lambda connection: (-counts[connection._network], connection._waits_since_s)
        )
        victim.transport.abort()
        self.connections.discard(
            victim
        )  # Removed at once: many connections may arrive in one turn of the event loop.
        return True

    # ------------------------------------------------------------ time

    def _expect_head(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._waits_since_s = self.loop.time()
        self._deadline = self.loop.call_later(HEAD_S, self._head_is_late)

    def _head_is_late(self) -> None:
        if self.transport.get_write_buffer_size():  # A slow browser is still reading the answer.
            self._expect_reading()
        self.transport.close()

    def _expect_reading(self) -> None:
        """Close the connection if its browser reads no buffered data for SEND_S.

        Progress is checked twice: a console that was held up itself may find no progress once, though the browser is
        ready to read.
        """
        if self._stall is not None:
            self._stall.cancel()
        left = self.transport.get_write_buffer_size()
        self._stall = self.loop.call_later(SEND_S / 2, self._check_reading, left, False)

    def _check_reading(self, before: int, is_second: bool) -> None:
        left = self.transport.get_write_buffer_size()
        if left and left < before:
            self._expect_reading()
        elif left and is_second:
            self.transport.abort()
        elif left:
            self._stall = self.loop.call_later(SEND_S / 2, self._check_reading, left, True)

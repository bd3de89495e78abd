"""Connections on which a producer added its group's offsets to a transaction, and then fell silent.

A producer below transaction version 2 sends AddOffsetsToTxn to the coordinator of its transaction, and the offsets
themselves to the coordinator of the group. librdkafka 2.11 to 2.16 may wait there for a coordinator that it has removed
from its list: because Metadata did not name it, or because all of its connections had ended. It looks for the
coordinator again when the next of its connections opens or closes. So a connection that is silent after such an answer
is closed, once. To any client that is the end of an idle connection.
"""

from __future__ import annotations

import asyncio

from ..server.connection import ClientConnection

SILENCE_S = 5.0


class AnnouncedOffsets:
    """A watch on client connections from the answer to AddOffsetsToTxn until the client ends the transaction. A
    connection that stays silent is closed once."""

    def __init__(self) -> None:
        self._timers: dict[ClientConnection, asyncio.TimerHandle] = {}

    def added(self, connection: ClientConnection) -> None:
        """Watch a connection, whose client has added the offsets of a group and is about to send them."""
        if connection not in self._timers:
            self._check_later(connection, SILENCE_S)

    def ending(self, connection: ClientConnection) -> None:
        """Stop watching a connection, since its client ends its transaction."""
        timer = self._timers.pop(connection, None)
        if timer is not None:
            timer.cancel()

    def _check_later(self, connection: ClientConnection, delay_s: float) -> None:
        loop = asyncio.get_running_loop()
        self._timers[connection] = loop.call_later(delay_s, self._check, connection)

    def _check(self, connection: ClientConnection) -> None:
        del self._timers[connection]
        if connection.closed:
            return
        left_s = connection.last_activity + SILENCE_S - asyncio.get_running_loop().time()
        if left_s > 0 or connection.owes_replies:
            self._check_later(connection, max(left_s, 0.1 * SILENCE_S))
        else:
            connection.close()

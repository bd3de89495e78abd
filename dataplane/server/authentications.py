"""Who logs in, over all connections of a server: bounds on strangers, and logins that end with their credential."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Final

from ..security.peer_session import PeerSession
from .authentication import AuthenticationSettings, ConnectionAuthentication, Dispatch, TellVersions
from .connection import ClientConnection, ConnectionLimits

logger = logging.getLogger(__name__)

FAILURES_PER_MINUTE: Final = 20
"""An address whose logins failed so often within a minute waits before each further one."""
HELD_MS: Final = 1000
_MINUTE_S: Final = 60.0


class Authentications:
    """The connections that logged in by SASL, or are about to."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        now_ms: Callable[[], float],
        client_limits: ConnectionLimits,
        dispatch: Dispatch,
        tell_versions: TellVersions,
        *,
        strangers_max: int = 1000,
        strangers_per_address_max: int = 50,
    ) -> None:
        """`now_ms`: the wall clock. `strangers_max`: connections that have not logged in."""
        self._loop = loop
        self._now_ms = now_ms
        self._client_limits = client_limits
        self._dispatch = dispatch
        self._tell_versions = tell_versions
        self._strangers_max = strangers_max
        self._strangers_per_address_max = strangers_per_address_max
        self._all: dict[ClientConnection, ConnectionAuthentication] = {}
        # In the order in which they came.
        self._strangers: dict[ClientConnection, None] = {}
        self._failures: Counter[str] = Counter()
        self._failures_since = loop.time()

    def begin(self, connection: ClientConnection, settings: AuthenticationSettings) -> None:
        """A connection to a listener that asks for a login has come."""
        host = connection.session.host
        self._make_room(host)
        self._strangers[connection] = None
        self._all[connection] = ConnectionAuthentication(
            connection,
            settings,
            self._client_limits,
            loop=self._loop,
            now_ms=self._now_ms,
            dispatch=self._dispatch,
            tell_versions=self._tell_versions,
            on_outcome=self._ended,
        )
        connection.call_on_close(lambda: self._closed(connection))
        if self._recent_failures(host) >= FAILURES_PER_MINUTE:
            connection.mute(HELD_MS)

    def of(self, connection: ClientConnection) -> ConnectionAuthentication | None:
        """How this connection logged in; None if it had not to."""
        return self._all.get(connection)

    def end(self, concerns: Callable[[PeerSession], bool], why: str) -> None:
        """Close the connections with such sessions, once their requests are answered."""
        for connection in [each for each in self._all if concerns(each.session)]:
            logger.info("closing the connection of %s: %s", connection, why)
            connection.close_when_answered()

    def _make_room(self, host: str) -> None:
        """A stranger more than are allowed takes the place of the oldest."""
        of_address = [each for each in self._strangers if each.session.host == host]
        if len(of_address) >= self._strangers_per_address_max:
            oldest = of_address[0]
        elif len(self._strangers) >= self._strangers_max:
            oldest = next(iter(self._strangers))
        else:
            return
        logger.info("closing the connection of %s: too many have not logged in", oldest)
        oldest.close()

    def _ended(self, connection: ClientConnection, succeeded: bool) -> None:
        self._strangers.pop(connection, None)
        if not succeeded:
            host = connection.session.host
            self._failures[host] = self._recent_failures(host) + 1

    def _recent_failures(self, host: str) -> int:
        now = self._loop.time()
        if now - self._failures_since > _MINUTE_S:
            self._failures.clear()
            self._failures_since = now
        return self._failures[host]

    def _closed(self, connection: ClientConnection) -> None:
        self._strangers.pop(connection, None)
        del self._all[connection]

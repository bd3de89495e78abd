"""The logins of all connections of a server: limits of failures, and the end of sessions whose credential has ended."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final

from ...network.unauthenticated_limits import UnauthenticatedPeers
from ..security.peer_session import PeerSession
from .authentication import AnswerVersions, AuthenticationSettings, ConnectionAuthentication, Dispatch
from .connection import ClientConnection, ConnectionLimits
from .delayed_closes import DelayedCloses
from .handshakes import Newcomer

logger = logging.getLogger(__name__)

FAILURES_PER_MINUTE: Final = 20
"""The number of failed logins within a minute after which an address waits before each further login."""
HELD_MS: Final = 1000
_MINUTE_S: Final = 60.0


class Authentications:
    """The authentications of all connections to SASL listeners: those that logged in, and those that are about to."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        now_ms: Callable[[], float],
        client_limits: ConnectionLimits,
        dispatch: Dispatch,
        answer_versions: AnswerVersions,
        unauthenticated: UnauthenticatedPeers[Newcomer],
        delayed_closes: DelayedCloses,
        waits_for_others: Callable[[int], bool],
    ) -> None:
        """`now_ms` is the wall clock. A peer that logs in is removed from `unauthenticated`. `waits_for_others` returns
        whether the requests of an API key wait for other clients."""
        self._loop = loop
        self._now_ms = now_ms
        self._client_limits = client_limits
        self._dispatch = dispatch
        self._answer_versions = answer_versions
        self._unauthenticated = unauthenticated
        self._delayed_closes = delayed_closes
        self._waits_for_others = waits_for_others
        self._all: dict[ClientConnection, ConnectionAuthentication] = {}
        self._logging_in: dict[Newcomer, ClientConnection] = {}
        self._failures: Counter[str] = Counter()
        self._failures_since = loop.time()

    def begin(
        self, connection: ClientConnection, newcomer: Newcomer, settings: AuthenticationSettings
    ) -> None:
        """Begin the authentication of a connection to a listener that requires a login."""
        self._logging_in[newcomer] = connection
        self._all[connection] = ConnectionAuthentication(
            connection,
            settings,
            self._client_limits,
            loop=self._loop,
            now_ms=self._now_ms,
            deadline=newcomer.deadline,
            dispatch=self._dispatch,
            answer_versions=self._answer_versions,
            on_outcome=partial(self._ended, newcomer),
            on_progress=partial(self._unauthenticated.progressed, newcomer),
            close_later=self._delayed_closes.close_later,
        )
        connection.call_on_close(lambda: self._closed(connection, newcomer))
        if self._recent_failures(connection.session.host) >= FAILURES_PER_MINUTE:
            connection.mute(HELD_MS)

    def of(self, connection: ClientConnection) -> ConnectionAuthentication | None:
        """Return the authentication of a connection; None if its listener requires none."""
        return self._all.get(connection)

    def end(self, concerns: Callable[[PeerSession], bool], why: str) -> None:
        """End the sessions that `concerns` selects. Their connections are closed once received requests are answered,
        so that a change made before is acknowledged. `why` is logged.
        """
        for connection in [each for each in self._all if concerns(each.session)]:
            logger.info("closing the connection of %s: %s", connection, why)
            connection.end_session(self._waits_for_others)

    def cut_off(self, newcomer: Newcomer) -> bool:
        """Close the connection of a peer that has not logged in. Returns False if the peer has no such connection."""
        connection = self._logging_in.get(newcomer)
        if connection is not None:
            connection.close()
        return connection is not None

    def bound_lives(self, expires_at_ms: Callable[[PeerSession], int | None]) -> None:
        """Limit each session to the expiry that `expires_at_ms` returns for it, in milliseconds since 1970, unless the
        peer logs in again. A session is unchanged if it returns None.
        """
        for connection, authentication in self._all.items():
            bound = expires_at_ms(connection.session)
            if bound is not None:
                authentication.bound_life(bound)

    def _ended(self, newcomer: Newcomer, succeeded: bool) -> None:
        self._unauthenticated.forget(newcomer)
        self._logging_in.pop(newcomer, None)
        if not succeeded:
            host = newcomer.session.host
            self._failures[host] = self._recent_failures(host) + 1

    def _recent_failures(self, host: str) -> int:
        now = self._loop.time()
        if now - self._failures_since > _MINUTE_S:
            self._failures.clear()
            self._failures_since = now
        return self._failures[host]

    def _closed(self, connection: ClientConnection, newcomer: Newcomer) -> None:
        self._unauthenticated.forget(newcomer)
        self._logging_in.pop(newcomer, None)
        del self._all[connection]

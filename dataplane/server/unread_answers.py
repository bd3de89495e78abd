"""Answers that are in memory since their clients do not read them: a budget over all connections. Pure.

A connection holds up to a megabyte of such answers and one answer more, and is not read meanwhile. If very many
connections do so, those blocked longest are closed: first those of a principal or an address that has used up its
share.
"""

from __future__ import annotations

import logging
from typing import Final, Protocol

from ..runtime.retained_bytes import RetainedBytes, RetainedClaim
from ..security.peer_session import PeerSession

UNREAD_BYTES_MAX: Final = 256 * 1024 * 1024
"""The maximum for a server."""
PATIENCE_S: Final = 1.0
"""Time in seconds after which a blocked connection may be closed. It is closed earlier only if the unread bytes are
twice the maximum."""

logger = logging.getLogger(__name__)


class BlockedConnection(Protocol):
    """A connection whose peer does not read its answers."""

    session: PeerSession

    def close(self) -> None:
        """Close the connection, which also removes it from this budget."""


class _Blocked:
    __slots__ = ("claim", "holders", "since_s")

    def __init__(self, claim: RetainedClaim, holders: tuple[str, str], since_s: float) -> None:
        self.claim = claim
        self.holders = holders
        self.since_s = since_s


class UnreadAnswers:
    """The connections with unsent answers that their peers do not read, the longest blocked first, and a budget for the
    memory of those answers.
    """

    def __init__(self, bytes_max: int = UNREAD_BYTES_MAX) -> None:
        self.budget = RetainedBytes(bytes_max)
        self._blocked: dict[BlockedConnection, _Blocked] = {}

    def note(self, connection: BlockedConnection, unread_bytes: int, now_s: float) -> None:
        """Note that a connection has `unread_bytes` in memory that its peer has not taken. Closes connections, perhaps
        this one, if there are too many bytes."""
        blocked = self._blocked.get(connection)
        if blocked is None:
            holders = (str(connection.session.principal), connection.session.host)
            claim = self.budget.claim_anyway(0, *holders)
            blocked = self._blocked[connection] = _Blocked(claim, holders, now_s)
        blocked.claim.count(unread_bytes)
        if not self.budget.fits(0, blocked.holders):
            self._make_room(connection, blocked.holders, now_s)

    def emptied(self, connection: BlockedConnection) -> None:
        """Remove a connection whose peer has taken all bytes, or that is closed."""
        self._blocked.pop(connection, None)

    def _make_room(self, newest: BlockedConnection, holders: tuple[str, str], now_s: float) -> None:
        for connection, blocked in list(self._blocked.items()):
            is_full = self.budget.total > self.budget.bytes_max
            is_theirs = not {*holders}.isdisjoint(blocked.holders)
            if not blocked.claim.size or not (is_full or is_theirs):
                continue
            if now_s - blocked.since_s <= PATIENCE_S and self.budget.total <= 2 * self.budget.bytes_max:
                break
            logger.info(
                "closing the connection of %s: its client has not read %d bytes of answers, and there are %d in all",
                connection, blocked.claim.size, self.budget.total,
            )  # fmt: skip
            connection.close()
            if connection is newest or self.budget.fits(0, holders):
                return

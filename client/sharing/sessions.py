"""Share sessions (KIP-932) as a member sees them: the epoch of the next request, and the partitions the leader knows.

Pure. The request with epoch 0 opens a session and names all its partitions. Each later request has the next epoch, and
names the partitions that come and go. A request with epoch -1 closes the session. A session ends with its connection,
and after SHARE_SESSION_NOT_FOUND or INVALID_SHARE_SESSION_EPOCH. The locks that the member had from it end too.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Final, NamedTuple

from ...protocol.messages.share_fetch import CLOSE_SESSION_EPOCH, OPEN_SESSION_EPOCH
from .places import Place

EPOCH_MAX: Final = 2**31 - 1


class FetchTurn(NamedTuple):
    """The session's part of a ShareFetch: its epoch, and the partitions that the leader adds and forgets."""

    epoch: int
    added: list[Place]
    forgotten: list[Place]


class MemberSession:
    """The share session with one leader. Requests are sequential: `fetch`, `acknowledge` or `close`, then `answered` or
    `ended`."""

    def __init__(self) -> None:
        self._epoch = OPEN_SESSION_EPOCH
        self._known: frozenset[Place] = frozenset()
        self._next: frozenset[Place] = frozenset()

    @property
    def is_open(self) -> bool:
        """True if the leader has answered the request that opened the session."""
        return self._epoch != OPEN_SESSION_EPOCH

    @property
    def partitions(self) -> frozenset[Place]:
        """The partitions of the session, as of the last answer."""
        return self._known

    def fetch(self, wanted: Set[Place]) -> FetchTurn:
        """Return the session's part of a ShareFetch for these partitions. It opens the session if there is none."""
        self._next = frozenset(wanted)
        return FetchTurn(self._epoch, sorted(wanted - self._known), sorted(self._known - wanted))

    def acknowledge(self) -> int:
        """Return the epoch of a ShareAcknowledge. Raises ValueError without a session."""
        if not self.is_open:
            raise ValueError("acknowledgements need an open share session")
        self._next = self._known
        return self._epoch

    def close(self) -> int:
        """Return the epoch of the request that closes the session."""
        return CLOSE_SESSION_EPOCH

    def answered(self) -> None:
        """Note that the leader has accepted the last request."""
        self._epoch = 1 if self._epoch >= EPOCH_MAX else self._epoch + 1
        self._known = self._next

    def ended(self) -> None:
        """Note that there is no session any more: the next request opens another one."""
        self._epoch = OPEN_SESSION_EPOCH
        self._known = self._next = frozenset()

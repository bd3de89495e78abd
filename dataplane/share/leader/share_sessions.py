"""The share sessions of this broker, with their memory, and the release of records when a session ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

from ....protocol.errors import ErrorCode, KafkaError
from ...runtime.retained_bytes import RetainedClaim
from ...server.connection import ClientConnection
from ..sessions import (
    CLOSING_EPOCH,
    OPENING_EPOCH,
    SessionKey,
    SharedPartition,
    ShareSession,
    ShareSessionCache,
)
from .acknowledging import AcknowledgeRound
from .dependencies import ShareKey
from .share_partitions import SharePartitions

SESSION_BYTES = 2_000
"""Approximate memory of a share session without its partitions and names."""
SESSION_PARTITION_BYTES = 500
"""Approximate memory of a partition in a share session, and of a fetch that waits for its records."""


class ParkedFetch(Protocol):
    """A fetch of a share session that waits."""

    def superseded(self) -> None:
        """Answer the fetch with the records that it has, since the session goes on without it."""


class ShareSessions:
    """All share sessions of a broker. A session ends with the connection that opened it."""

    def __init__(self, partitions: SharePartitions, sessions_max: Callable[[], int]) -> None:
        """`sessions_max` returns group.share.max.share.sessions."""
        self._partitions = partitions
        self._sessions_max = sessions_max
        self._cache = ShareSessionCache()
        self._claims: dict[SessionKey, RetainedClaim] = {}
        self._connections: set[ClientConnection] = set()
        self.parked: dict[SessionKey, ParkedFetch] = {}
        """The waiting fetch of each session, which the next request of the session ends."""

    def __len__(self) -> int:
        return len(self._cache)

    # ------------------------------------------------------------ requests

    def fetch(
        self,
        key: SessionKey,
        epoch: int,
        connection: ClientConnection,
        holders: tuple[str, ...],
        *,
        added: Iterable[SharedPartition],
        forgotten: Iterable[SharedPartition],
        has_acknowledgements: bool,
    ) -> ShareSession:
        """Return the session for a ShareFetch, at its next epoch and with its new partitions. The closing epoch leaves
        the partitions unchanged.

        Raises KafkaError: INVALID_REQUEST, SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH,
        SHARE_SESSION_LIMIT_REACHED if there are too many sessions, or their partitions do not fit into memory.
        """
        if epoch == OPENING_EPOCH and not has_acknowledgements:
            return self._open(key, connection, holders, added)
        session = self._cache.fetch(key, epoch, connection, has_acknowledgements=has_acknowledgements)
        if epoch != CLOSING_EPOCH:
            try:
                self._update(session, holders, list(added), list(forgotten))
            except KafkaError:
                self._end(self._cache.close(key))
                raise
        self._supersede(key)
        return session

    def acknowledge(self, key: SessionKey, epoch: int) -> ShareSession:
        """Return the session for a ShareAcknowledge, at its next epoch. Raises KafkaError: SHARE_SESSION_NOT_FOUND,
        INVALID_SHARE_SESSION_EPOCH."""
        session = self._cache.acknowledge(key, epoch)
        self._supersede(key)
        return session

    def close(self, key: SessionKey, ending: AcknowledgeRound) -> None:
        """End a session that its member closes. The writes of its released records are steps of `ending`."""
        session = self._cache.close(key)
        if session is not None:
            self._release(session, ending)
            self._end(session)

    # ------------------------------------------------------------ partitions and memory

    def _open(
        self,
        key: SessionKey,
        connection: ClientConnection,
        holders: tuple[str, ...],
        added: Iterable[SharedPartition],
    ) -> ShareSession:
        """Open a session. An earlier session of the member ends, and the member's locks stay."""
        self._supersede(key)
        self._cache.sessions_max = self._sessions_max()
        earlier, partitions = self._cache.close(key), tuple(dict.fromkeys(added))
        try:
            self._claims.pop(key, None)
            claim = self._claimed(key, holders, partitions, len(partitions))
            try:
                session = self._cache.fetch(key, OPENING_EPOCH, connection, added=partitions)
            except KafkaError:
                # The error's traceback refers to the claim, and may live for a while.
                claim.count(0)
                raise
            self._claims[key] = claim
            for partition in partitions:
                self._partitions.used(ShareKey(key.group_id, *partition))
        finally:
            if earlier is not None:
                self._disuse(earlier, earlier)
        if connection not in self._connections:
            self._connections.add(connection)
            connection.call_on_close(lambda: self._connection_closed(connection))
        return session

    def _update(
        self,
        session: ShareSession,
        holders: tuple[str, ...],
        added: list[SharedPartition],
        forgotten: list[SharedPartition],
    ) -> None:
        new = [partition for partition in dict.fromkeys(added) if partition not in session]
        if new:
            claim = self._claimed(session.key, holders, new, len(session) + len(new))
            self._claims[session.key] = claim
            session.update(new, ())
            for partition in new:
                self._partitions.used(ShareKey(session.key.group_id, *partition))
        gone = [partition for partition in dict.fromkeys(forgotten) if partition in session]
        if gone:
            session.update((), gone)
            self._disuse(session, gone)

    def _claimed(
        self, key: SessionKey, holders: tuple[str, ...], new: Iterable[SharedPartition], count: int
    ) -> RetainedClaim:
        """Return a claim to the memory of a session of this many partitions. Raises KafkaError,
        SHARE_SESSION_LIMIT_REACHED, if it does not fit together with its new share partitions."""
        budget = self._partitions.budget
        claim = self._claims.get(key)
        before = 0 if claim is None else claim.size
        size = SESSION_BYTES + 4 * sum(map(len, key)) + SESSION_PARTITION_BYTES * count
        to_make = self._partitions.missing_bytes(ShareKey(key.group_id, *partition) for partition in new)
        if not budget.fits(size - before + to_make, holders):
            raise KafkaError(
                ErrorCode.SHARE_SESSION_LIMIT_REACHED,
                f"A share session of {count} partitions does not fit into the broker's memory for share groups.",
            )
        if claim is None:
            return budget.claim_anyway(size, *holders)
        claim.count(size)
        return claim

    # ------------------------------------------------------------ ends

    def _connection_closed(self, connection: ClientConnection) -> None:
        """End the sessions of a lost connection, and release the records that their members hold."""
        self._connections.discard(connection)
        for session in self._cache.close_connection(connection):
            ending = AcknowledgeRound(lambda: None)
            self._release(session, ending)
            self._end(session)

    def _release(self, session: ShareSession, ending: AcknowledgeRound) -> None:
        group_id, member_id = session.key
        for partition in session:
            led = self._partitions.find(ShareKey(group_id, *partition))
            if led is None or led.share is None:
                continue
            ended = ending.step()
            try:
                led.release(member_id, partial(_ignore_outcome, ended))
            except KafkaError:
                ended()  # The leadership ends. The next leader has no locks.

    def _end(self, session: ShareSession | None) -> None:
        if session is not None:
            self._supersede(session.key)
            self._claims.pop(session.key, None)
            self._disuse(session, session)

    def _disuse(self, session: ShareSession, partitions: Iterable[SharedPartition]) -> None:
        for partition in partitions:
            self._partitions.unused(ShareKey(session.key.group_id, *partition))

    def _supersede(self, key: SessionKey) -> None:
        parked = self.parked.pop(key, None)
        if parked is not None:
            parked.superseded()


def _ignore_outcome(ended: Callable[[], None], _error: KafkaError | None) -> None:
    """End a step. A release that was not written is written again, and the answer does not wait for it."""
    ended()

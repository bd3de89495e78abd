"""Share sessions (KIP-932): the partitions that a member fetches from this broker, without naming them each time.

Pure. A session belongs to a member of a group, and to the connection that opened it. A request with epoch 0 opens the
session, each later request has the next epoch, and a request with epoch -1 closes it. When a session closes, the caller
releases the member's records in the partitions of the session, on this broker alone.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import NamedTuple

from ...protocol.errors import ErrorCode, KafkaError

OPENING_EPOCH = 0
CLOSING_EPOCH = -1
EPOCH_MAX = 2**31 - 1
SESSIONS_MAX = 2_000
"""Default of group.share.max.share.sessions."""


class SessionKey(NamedTuple):
    """The identity of a share session on a broker."""

    group_id: str
    member_id: str


class SharedPartition(NamedTuple):
    """A partition of a topic, by the topic's id."""

    topic_id: bytes
    partition: int


def next_epoch(epoch: int) -> int:
    """Return the epoch of a share session after `epoch`: the next number, which wraps from 2^31 - 1 to 1."""
    return 1 if epoch >= EPOCH_MAX else epoch + 1


class ShareSession:
    """The partitions of a share session in the order of the next fetch, and the epoch of its next request."""

    __slots__ = ("_partitions", "connection", "epoch", "key")

    def __init__(self, key: SessionKey, connection: Hashable, partitions: Iterable[SharedPartition]) -> None:
        self.key = key
        self.connection = connection
        self.epoch = next_epoch(OPENING_EPOCH)
        # Whether the next answer must contain the partition even if it has no records.
        self._partitions = dict.fromkeys(partitions, True)

    def __len__(self) -> int:
        return len(self._partitions)

    def __iter__(self) -> Iterator[SharedPartition]:
        """Iterate over the partitions. The partition whose records were sent last comes last."""
        return iter(tuple(self._partitions))

    def __contains__(self, partition: SharedPartition) -> bool:
        return partition in self._partitions

    def update(self, added: Iterable[SharedPartition], forgotten: Iterable[SharedPartition]) -> None:
        """Add and remove partitions. The records that the member holds in a removed partition stay locked."""
        for partition in added:
            self._partitions.setdefault(partition, True)
        for partition in forgotten:
            self._partitions.pop(partition, None)

    def must_answer(self, partition: SharedPartition) -> bool:
        """Return whether the next answer must contain this partition even if it has no records: the partition is new,
        or its last answer was an error."""
        return self._partitions.get(partition, False)

    def answered(self, partition: SharedPartition, *, has_records: bool, is_error: bool) -> None:
        """Note that an answer contains a partition. With records, the partition goes behind the others."""
        if partition not in self._partitions:
            return
        if has_records:
            del self._partitions[partition]
        self._partitions[partition] = is_error


class ShareSessionCache:
    """All share sessions of a broker, at most `sessions_max`."""

    def __init__(self, sessions_max: int = SESSIONS_MAX) -> None:
        self.sessions_max = sessions_max
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._by_connection: dict[Hashable, set[SessionKey]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def fetch(
        self,
        key: SessionKey,
        epoch: int,
        connection: Hashable,
        *,
        added: Iterable[SharedPartition] = (),
        forgotten: Iterable[SharedPartition] = (),
        has_acknowledgements: bool = False,
    ) -> ShareSession:
        """Return the session for a ShareFetch, at its next epoch and with its new partitions.

        For the closing epoch the session is unchanged; the caller applies the acknowledgements, and calls `close`.

        Raises KafkaError: INVALID_REQUEST if an opening request has acknowledgements, or a closing request adds
        partitions. SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH, or SHARE_SESSION_LIMIT_REACHED if all places
        are taken.
        """
        if epoch == OPENING_EPOCH:
            return self._open(key, connection, added, has_acknowledgements=has_acknowledgements)
        if epoch == CLOSING_EPOCH:
            if any(True for _ in added):
                raise _refused(
                    ErrorCode.INVALID_REQUEST, "A request that closes a share session adds partitions."
                )
            return self._get(key)
        session = self._advance(key, epoch)
        session.update(added, forgotten)
        return session

    def acknowledge(self, key: SessionKey, epoch: int) -> ShareSession:
        """Return the session for a ShareAcknowledge, at its next epoch. For the closing epoch it is unchanged.

        Raises KafkaError: SHARE_SESSION_NOT_FOUND, or INVALID_SHARE_SESSION_EPOCH, also for the opening epoch.
        """
        if epoch == OPENING_EPOCH:
            raise _refused(
                ErrorCode.INVALID_SHARE_SESSION_EPOCH, "A ShareAcknowledge cannot open a share session."
            )
        return self._get(key) if epoch == CLOSING_EPOCH else self._advance(key, epoch)

    def close(self, key: SessionKey) -> ShareSession | None:
        """Remove a session, and return it: the caller releases the records in its partitions."""
        session = self._sessions.pop(key, None)
        if session is not None:
            keys = self._by_connection[session.connection]
            keys.remove(key)
            if not keys:
                del self._by_connection[session.connection]
        return session

    def close_connection(self, connection: Hashable) -> list[ShareSession]:
        """Remove and return the sessions that a connection has opened, since the connection is lost."""
        closed = [self.close(key) for key in tuple(self._by_connection.get(connection, ()))]
        return [session for session in closed if session is not None]

    def _open(
        self,
        key: SessionKey,
        connection: Hashable,
        partitions: Iterable[SharedPartition],
        *,
        has_acknowledgements: bool,
    ) -> ShareSession:
        """Open a session. An earlier session of the member is replaced, and the member's locks stay."""
        if has_acknowledgements:
            raise _refused(
                ErrorCode.INVALID_REQUEST, "A request that opens a share session has acknowledgements."
            )
        self.close(key)
        if len(self._sessions) >= self.sessions_max:
            raise _refused(
                ErrorCode.SHARE_SESSION_LIMIT_REACHED,
                f"The broker has {len(self._sessions)} share sessions; group.share.max.share.sessions allows "
                f"{self.sessions_max}.",
            )
        session = self._sessions[key] = ShareSession(key, connection, partitions)
        self._by_connection.setdefault(connection, set()).add(key)
        return session

    def _get(self, key: SessionKey) -> ShareSession:
        session = self._sessions.get(key)
        if session is None:
            raise _refused(
                ErrorCode.SHARE_SESSION_NOT_FOUND,
                f"Member {key.member_id} of group {key.group_id} has no share session on this broker.",
            )
        return session

    def _advance(self, key: SessionKey, epoch: int) -> ShareSession:
        session = self._get(key)
        if epoch != session.epoch:
            raise _refused(
                ErrorCode.INVALID_SHARE_SESSION_EPOCH,
                f"The share session of member {key.member_id} in group {key.group_id} is at epoch {session.epoch}, "
                f"the request at {epoch}.",
            )
        session.epoch = next_epoch(session.epoch)
        return session


def _refused(error: ErrorCode, reason: str) -> KafkaError:
    return KafkaError(error, reason)

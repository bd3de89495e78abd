"""Fetch sessions of clients (KIP-227): the broker remembers between fetches which partitions a consumer reads.

Pure: time and randomness are arguments. Four rules:

- A request names only partitions that are new or whose position changed. An answer contains only partitions with news:
  records, an error, a moved high watermark or log start offset, a divergence, a replica to read from.
- A session keeps the set of its *active* partitions, which may have news. A partition without news leaves the set. Its
  replica puts it back when it wakes its readers after a change. So a fetch costs as much as the active partitions,
  however large the session is.
- A session belongs to the principal that opened it. For other principals its id does not exist.
- A partition whose records were sent goes to the end of the active ones. If the bytes of an answer run out, the other
  partitions come first next time.

A fetch without a session is a session for one request that is never kept.

All sessions share a budget of bytes, `FETCH_SESSION_BYTES_MAX`. A session that does not fit is declined with id 0. A
session that outgrows the budget ends; its client then names all of its partitions again.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

from ...protocol.errors import ErrorCode, KafkaError
from ..replication.fetch_values import FIRST_EPOCH
from ..runtime.retained_bytes import RetainedBytes, RetainedClaim
from ..security.principal import Principal

if TYPE_CHECKING:
    from ...protocol.messages.fetch import FetchPartition, FetchTopic, ForgottenTopic, PartitionData
    from ..replication.replica.partition import Partition
    from ..security.authorization.grants import Grants

NO_SESSION_ID = 0
FINAL_EPOCH = -1
"""Epoch of a request that wants no session, and closes the session that it names."""
MAX_SESSION_ID = 0x7FFFFFFF
EVICTABLE_AFTER_MS = 120_000
"""Age from which a session may be replaced by a larger one. A session that was unused for this time may be replaced by
any other."""

FETCH_SESSION_BYTES_MAX = 128 * 1024 * 1024
"""Memory of all sessions: some 200,000 partitions. A principal, or an address, may use half of it."""
PARTITION_BYTES = 600
"""Approximate memory of a partition in a session, without the name of its topic."""

_NEVER_SENT = -2
_AFTER_ERROR = -1

Key = tuple[str | bytes, int]
"""Topic, identified by name or by id as in the whole session, and partition."""


def next_epoch(epoch: int) -> int:
    """Return the epoch of a fetch session after `epoch`: the next number, which wraps from 2^31 - 1 to 1."""
    return 1 if epoch >= MAX_SESSION_ID else epoch + 1


def _bytes_of(topic: str | bytes) -> int:
    """Return the approximate bytes of memory that a fetch session takes for one partition of this topic. A character
    takes up to four bytes."""
    return PARTITION_BYTES + (len(topic) if isinstance(topic, bytes) else 4 * len(topic))


class WaitingFetch(Protocol):
    """A fetch of a session that waits for records; it is read again when `wake` is called."""

    def wake(self) -> None: ...
    def superseded(self, error: ErrorCode) -> None:
        """Answer the fetch with the error, since the session continues or ends without it."""


class SessionPartition:
    """A partition of a fetch session: the client's position and limits for it, and the high watermark and log start
    that the client last got."""

    __slots__ = (
        "_sent_log_start",
        "_sent_watermark",
        "key",
        "part",
        "partition",
        "session",
        "topic",
        "topic_id",
    )

    def __init__(self, session: FetchSession, key: Key, topic: FetchTopic, part: FetchPartition) -> None:
        self.session = session
        self.key = key
        # Topic name; empty until it is known, if the client fetches by id.
        self.topic = topic.topic
        self.topic_id = topic.topic_id
        self.part = part
        # The replica that wakes this partition when it has news.
        self.partition: Partition | None = None
        self._sent_watermark = self._sent_log_start = _NEVER_SENT

    def has_news(self, data: PartitionData, size: int) -> bool:
        """Return whether an answer to the client must contain this partition: it has `size` bytes of records, an error
        or a divergence, or an offset has moved."""
        return (
            size > 0
            or data.error_code != 0
            or data.high_watermark != self._sent_watermark
            or data.log_start_offset != self._sent_log_start
            or data.preferred_read_replica >= 0
            or data.diverging_epoch.end_offset >= 0
        )

    def sent(self, data: PartitionData, size: int) -> None:
        """Remember the partition's high watermark and log start that the client gets now. With records, the partition
        goes to the end of the active ones."""
        # After an error the partition is sent again, whatever its high watermark is.
        self._sent_watermark = _AFTER_ERROR if data.error_code else data.high_watermark
        self._sent_log_start = data.log_start_offset
        if size:
            self.session.move_to_end(self)

    def wake(self) -> None:
        """Activate this partition of the session, since its replica's high watermark, log start or role has changed."""
        self.session.activate(self)

    def watch(self, partition: Partition) -> None:
        """Have this replica call `wake` after its next change."""
        if self.partition is not partition:
            self.unwatch()
            self.partition = partition
        partition.readers.add(self)

    def unwatch(self) -> None:
        """Stop the replica from calling `wake`."""
        if self.partition is not None:
            self.partition.readers.discard(self)
            self.partition = None


class FetchSession:
    """A client's fetch session (KIP-227): the partitions that it fetches. Invariant: a partition that is not active is
    watched, so that its replica activates it."""

    __slots__ = (
        "acl_version", "active", "by_id", "cached_size", "claim", "created_ms", "epoch", "grants", "host", "id",
        "isolation_level", "last_used_ms", "owner", "parked", "partitions", "retained_bytes",
    )  # fmt: skip

    def __init__(self, owner: Principal, *, by_id: bool, host: str = "") -> None:
        self.owner = owner
        # Address of the client.
        self.host = host
        # Approximate memory of the partitions, and the claim to it; the claim is None until the session is to be kept.
        self.retained_bytes = 0
        self.claim: RetainedClaim | None = None
        self.id = NO_SESSION_ID
        # Epoch of the next request.
        self.epoch = next_epoch(FIRST_EPOCH)
        self.by_id = by_id
        self.partitions: dict[Key, SessionPartition] = {}
        self.active: dict[SessionPartition, None] = {}
        self.parked: WaitingFetch | None = None
        # Permissions at the last time when all partitions were checked, and the version of the ACLs then.
        self.grants: Grants | None = None
        self.acl_version = 0
        # Isolation level of the last request, on which the news depend.
        self.isolation_level = 0
        self.created_ms = self.last_used_ms = 0
        # Size by which the cache orders the session.
        self.cached_size = -1

    def __len__(self) -> int:
        return len(self.partitions)

    def update(self, topics: Iterable[FetchTopic], forgotten: Iterable[ForgottenTopic] = ()) -> None:
        """Update the session's partitions from a request: named partitions are added or changed, and become active;
        forgotten ones are removed."""
        by_id, partitions, active = self.by_id, self.partitions, self.active
        for topic in topics:
            name: str | bytes = topic.topic_id if by_id else topic.topic
            for part in topic.partitions:
                key = (name, part.partition)
                known = partitions.get(key)
                if known is None:
                    known = partitions[key] = SessionPartition(self, key, topic, part)
                    self.retained_bytes += _bytes_of(name)
                else:
                    known.part = part
                active[known] = None
        for gone in forgotten:
            name = gone.topic_id if by_id else gone.topic
            for index in gone.partitions:
                dropped = partitions.pop((name, index), None)
                if dropped is not None:
                    self.retained_bytes -= _bytes_of(name)
                    active.pop(dropped, None)
                    dropped.unwatch()

    def isolate(self, level: int) -> None:
        """Set the session's isolation level to that of a request. If the level changes, all partitions become
        active."""
        if level != self.isolation_level:
            self.isolation_level = level
            self.active |= dict.fromkeys(self.partitions.values())

    def follow(self, grants: Grants) -> None:
        """Set the session's permissions to those of the peer. If ACLs have changed, all partitions become active.

        Inactive partitions are neither read nor checked. So they may have news after a change of ACLs: that access is
        denied now, or no longer.
        """
        if self.grants is not grants or self.acl_version != grants.version:
            self.grants, self.acl_version = grants, grants.version
            self.active |= dict.fromkeys(self.partitions.values())

    def activate(self, partition: SessionPartition) -> None:
        """Put a partition, which may have news, among the session's active ones, and wake the session's waiting
        fetch."""
        self.active[partition] = None
        if self.parked is not None:
            self.parked.wake()

    def rest(self, partition: SessionPartition) -> None:
        """Remove a partition without news from the session's active ones. Its replica puts it back after a change."""
        self.active.pop(partition, None)

    def move_to_end(self, partition: SessionPartition) -> None:
        """Move a partition to the end of the session's active ones, since its records were sent: other partitions come
        first next time."""
        if partition in self.active:
            del self.active[partition]
            self.active[partition] = None

    def close(self, error: ErrorCode = ErrorCode.FETCH_SESSION_ID_NOT_FOUND) -> None:
        """End the session: no replica wakes it any more, and its waiting fetch is answered with `error`."""
        for partition in self.partitions.values():
            partition.unwatch()
        self.active.clear()
        self.claim = None
        parked, self.parked = self.parked, None
        if parked is not None:
            parked.superseded(error)


class FetchSessionCache:
    """All fetch sessions of clients, at most `slots` (max.incremental.fetch.session.cache.slots).

    If all slots are taken, a new session replaces a session that was unused for two minutes. Otherwise it replaces the
    smallest of the sessions older than two minutes, if it is larger itself; if not, the client gets no session. If the
    budget of bytes is used up, sessions that were unused for two minutes end.
    """

    def __init__(
        self, slots: int, randomness: random.Random, bytes_max: int = FETCH_SESSION_BYTES_MAX
    ) -> None:
        self._slots = slots
        self.budget = RetainedBytes(bytes_max)
        self._randomness = randomness
        # Sessions in the order of their last use, oldest first.
        self._sessions: dict[int, FetchSession] = {}
        # Pairs (size, id) of sessions that are old enough. Outdated entries are removed when they come up.
        self._evictable: list[tuple[int, int]] = []
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[FetchSession]:
        return iter(self._sessions.values())

    @property
    def partitions(self) -> int:
        """The number of partitions in all fetch sessions."""
        return sum(map(len, self._sessions.values()))

    def get(self, session_id: int, epoch: int, owner: Principal, *, by_id: bool) -> FetchSession:
        """Return the session that an incremental request of `owner` continues.

        Raises KafkaError: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, or FETCH_SESSION_TOPIC_ID_ERROR if
        the session identifies topics by names and the request by ids, or the reverse.
        """
        session = self._sessions.get(session_id)
        if session is None or session.owner != owner:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"there is no fetch session {session_id}")
        if session.epoch != epoch:
            raise KafkaError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"fetch session {session_id} is at epoch {session.epoch}, the request at {epoch}",
            )
        if session.by_id != by_id:
            ways = ("by name", "by id")
            raise KafkaError(
                ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
                f"fetch session {session_id} has topics {ways[session.by_id]}, the request {ways[by_id]}",
            )
        return session

    def proceed(self, session: FetchSession, now_ms: int) -> None:
        """Advance a session to the next epoch for an incremental request, which may have added partitions.

        The memory of the session is claimed, and a fetch of it that still waits is answered with
        INVALID_FETCH_SESSION_EPOCH.

        Raises KafkaError, FETCH_SESSION_ID_NOT_FOUND, if the session has outgrown the budget and has therefore ended.
        """
        if not self.claim(session, now_ms):
            self.close(session.id)
            raise KafkaError(
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
                f"fetch session {session.id} has ended: its {len(session)} partitions do not fit into memory",
            )
        if session.parked is not None:
            parked, session.parked = session.parked, None
            parked.superseded(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        session.epoch = next_epoch(session.epoch)
        self._touch(session, now_ms)

    def admit(self, session: FetchSession, now_ms: int) -> bool:
        """Keep a new session and give it an id, if there is room for its size. Returns whether it is kept."""
        if not self.claim(session, now_ms):
            return False
        if len(self._sessions) >= self._slots and not self._evict(len(session), now_ms):
            session.claim = None
            return False
        session.id = self._new_id()
        session.created_ms = now_ms
        self._touch(session, now_ms)
        return True

    def claim(self, session: FetchSession, now_ms: int) -> bool:
        """Claim the memory of a session at its present size. Returns False if the budget does not allow it."""
        if session.claim is None:
            session.claim = RetainedClaim(self.budget, (str(session.owner), session.host))
        if session.claim.resize(session.retained_bytes):
            return True
        for idle in self._idle(session, now_ms):
            self.evictions += 1
            self.close(idle.id)
            if session.claim.resize(session.retained_bytes):
                return True
        return False

    def _idle(self, larger: FetchSession, now_ms: int) -> list[FetchSession]:
        """Return the sessions that may end to make room for another, the least recently used first.

        These are all sessions that were unused for two minutes. If only the share of a principal or address is used up,
        they are those of that principal or address.
        """
        idle = itertools.takewhile(
            lambda session: now_ms - session.last_used_ms > EVICTABLE_AFTER_MS, self._sessions.values()
        )
        is_full = self.budget.total + larger.retained_bytes > self.budget.bytes_max
        return [
            session
            for session in idle
            if session is not larger
            and (is_full or session.owner == larger.owner or session.host == larger.host)
        ]

    def give_up(self, session_id: int, owner: Principal) -> None:
        """End the session with this id, if it belongs to `owner`."""
        session = self._sessions.get(session_id)
        if session is not None and session.owner == owner:
            self.close(session_id)

    def close(self, session_id: int) -> None:
        """End the session with this id, if there is one."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.close()

    def clear(self) -> None:
        """End all sessions."""
        for session_id in list(self._sessions):
            self.close(session_id)
        self._evictable.clear()

    def _new_id(self) -> int:
        while True:
            session_id = self._randomness.randint(1, MAX_SESSION_ID)
            if session_id not in self._sessions:
                return session_id

    def _touch(self, session: FetchSession, now_ms: int) -> None:
        session.last_used_ms = now_ms
        self._sessions.pop(session.id, None)
        self._sessions[session.id] = session
        size = len(session)
        if now_ms - session.created_ms <= EVICTABLE_AFTER_MS or session.cached_size == size:
            return
        session.cached_size = size
        heapq.heappush(self._evictable, (size, session.id))
        if len(self._evictable) > 2 * self._slots + 16:
            self._evictable = [entry for entry in self._evictable if self._is_current(entry)]
            heapq.heapify(self._evictable)

    def _is_current(self, entry: tuple[int, int]) -> bool:
        session = self._sessions.get(entry[1])
        return session is not None and session.cached_size == entry[0]

    def _evict(self, size: int, now_ms: int) -> bool:
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        if now_ms - oldest.last_used_ms <= EVICTABLE_AFTER_MS:
            while self._evictable and not self._is_current(self._evictable[0]):
                heapq.heappop(self._evictable)
            if not self._evictable or size <= self._evictable[0][0]:
                return False
            oldest = self._sessions[heapq.heappop(self._evictable)[1]]
        self.evictions += 1
        self.close(oldest.id)
        return True

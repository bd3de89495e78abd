"""The brokers' liveness: the sessions that the active Raft leader keeps, by its own clock alone.

Pure: the time is passed in (monotonic seconds), and the action for a silent broker is returned. A session lives while
heartbeats of the registered incarnation arrive, by UDP or TCP. A heartbeat counts from the last turn of the broker's
event loop, so a broker with a hung loop and a live heartbeat thread expires like a silent one.

The leader answers heartbeats, and heartbeats report which answers arrived. Once a broker misses an answer, its
heartbeats no longer count: it may send and be heard, but everything sent to it is lost, and its partitions stand still.
The measured time is therefore the leader's own time since its unheard answer, not a broker's clock; a leader that stood
still has sent no answers meanwhile.

A new leader restarts every timer (`begin`): expiry comes later, never earlier.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from .suspicion import Suspicions

#: A broker whose image is older than this serves stale metadata and is fenced.
DEFAULT_IMAGE_LAG_S_MAX = 10.0


class ExpiryReason(Enum):
    """The reason why a broker's session expired, so that the broker is fenced."""

    SILENT = "no heartbeat within broker.session.timeout.ms"
    DEAF = "its heartbeats arrive, but it has heard no answer within broker.session.timeout.ms"
    LAGGING = "its metadata image has fallen too far behind"


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The content of one heartbeat of a broker, over UDP or TCP. `loop_age_s` is the time since the last turn of the
    broker's event loop."""

    broker_id: int
    broker_epoch: int
    incarnation: bytes
    metadata_offset: int
    loop_age_s: float
    #: the counter of a UDP heartbeat; None over TCP, where the channel excludes replays
    counter: int | None = None
    #: the highest number of its heartbeats whose answer the broker has received; None if it does not report that
    answered: int | None = None


@dataclass(frozen=True, slots=True)
class BrokerSighting:
    """A broker's metadata offset, silence and lag by its heartbeats, for status reports. Times are seconds before
    now."""

    metadata_offset: int
    silent_s: float
    #: seconds since its image had everything; None if never since this node counts
    caught_up_before_s: float | None


@dataclass(frozen=True, slots=True)
class Expiry:
    """A broker that the leader must fence because its session expired, with the reason."""

    broker_id: int
    broker_epoch: int
    reason: ExpiryReason


@dataclass(slots=True)
class _Session:
    broker_epoch: int
    incarnation: bytes
    alive_at: float
    #: time of the last heartbeat; None before the first
    heard_at: float | None = None
    counter: int = -1
    #: true if its heartbeats report which answers arrive
    tells: bool = False
    #: the first answer since the last known received one: its number, and the time it was sent
    unheard: tuple[int, float] | None = None
    metadata_offset: int = -1
    #: time up to which the image had everything
    current_at: float = 0.0
    #: once the image reaches `target_offset` it has everything up to `target_at`
    target_offset: int = 0
    target_at: float = 0.0
    #: `current_at` according to the last heartbeat that advanced it
    caught_up_at: float | None = None


@dataclass(slots=True)
class SessionTracker:
    """The heartbeat sessions of all registered brokers, which expire `timeout_s` after a broker's last valid
    heartbeat."""

    timeout_s: float
    image_lag_s_max: float = DEFAULT_IMAGE_LAG_S_MAX
    #: the least silence after which a broker is fenced early; by default none is
    suspicion_s: float = float("inf")
    suspicions: Suspicions = field(init=False)
    _sessions: dict[int, _Session] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.suspicions = Suspicions(self.suspicion_s, self.timeout_s)

    def begin(self, brokers: Iterable[tuple[int, int, bytes]], end_offset: int, now: float) -> None:
        """Restart all timers when this node becomes leader: every registered (id, epoch, incarnation) has a full
        timeout from now.

        Only the counters against replays and the rhythms of heartbeats are kept, since every node receives every
        heartbeat.
        """
        self.suspicions.begin(now)
        before, self._sessions = self._sessions, {}
        for broker_id, broker_epoch, incarnation in brokers:
            self.register(broker_id, broker_epoch, incarnation, end_offset, now)
            known = before.get(broker_id)
            if known is not None and known.incarnation == incarnation:
                self._sessions[broker_id].counter = known.counter

    def register(
        self, broker_id: int, broker_epoch: int, incarnation: bytes, end_offset: int, now: float
    ) -> None:
        """Register a broker under this epoch; a session of an older epoch or incarnation is replaced."""
        session = self._sessions.get(broker_id)
        if session is None or (session.broker_epoch, session.incarnation) != (broker_epoch, incarnation):
            if session is not None:
                self.suspicions.forget(broker_id)
            self._sessions[broker_id] = _Session(
                broker_epoch, incarnation, now, current_at=now, target_offset=end_offset, target_at=now
            )

    def unregister(self, broker_id: int) -> None:
        """Remove a broker that left the cluster."""
        self._sessions.pop(broker_id, None)
        self.suspicions.forget(broker_id)

    def brokers(self) -> set[int]:
        """Return all brokers that have a session, alive or not."""
        return set(self._sessions)

    def heard(self, heartbeat: Heartbeat, end_offset: int, now: float) -> bool:
        """Note a heartbeat. Return False if it is a replay, or not of the registered incarnation and epoch.

        `end_offset` is the current end of the metadata stream, against which the broker's lag is measured.
        """
        session = self._sessions.get(heartbeat.broker_id)
        if session is None or session.incarnation != heartbeat.incarnation:
            return False
        if session.broker_epoch != heartbeat.broker_epoch:
            return False
        if heartbeat.counter is not None:
            if heartbeat.counter <= session.counter:
                return False
            session.counter = heartbeat.counter
        session.alive_at = max(session.alive_at, _counts_from(session, heartbeat, now))
        session.heard_at = now
        self.suspicions.heard(heartbeat.broker_id, now)
        session.metadata_offset = max(session.metadata_offset, heartbeat.metadata_offset)
        if session.metadata_offset >= session.target_offset:
            session.current_at = now if session.metadata_offset >= end_offset else session.target_at
            session.target_offset, session.target_at = end_offset, now
            session.caught_up_at = session.current_at
        return True

    def answered(self, broker_id: int, number: int, now: float) -> None:
        """Note that an accepted heartbeat is answered now. A broker that reports answers must receive this or a later
        one."""
        session = self._sessions.get(broker_id)
        if session is not None and session.unheard is None:
            session.unheard = (number, now)

    def stood_still(self, seconds: float, now: float) -> None:
        """Extend all timers after this node stood still and read no heartbeats for this time."""
        for session in self._sessions.values():
            session.alive_at = min(now, session.alive_at + seconds)
            session.current_at = min(now, session.current_at + seconds)
            if session.unheard is not None:
                number, sent_at = session.unheard
                session.unheard = (number, min(now, sent_at + seconds))

    def is_live(self, broker_id: int, now: float) -> bool:
        """Return whether a heartbeat of this broker has arrived within the timeout; a restarted timer alone does not
        count."""
        session = self._sessions.get(broker_id)
        return session is not None and session.heard_at is not None and self._expiry(session, now) is None

    def metadata_offset(self, broker_id: int) -> int:
        """Return the metadata offset that the broker's image had reached by its last heartbeat; -1 if unknown."""
        session = self._sessions.get(broker_id)
        return -1 if session is None else session.metadata_offset

    def sightings(self, now: float) -> dict[int, BrokerSighting]:
        """Return by broker id the state of every broker that has sent a heartbeat since this node began to count."""
        return {
            broker_id: BrokerSighting(
                session.metadata_offset,
                now - session.alive_at,
                None if session.caught_up_at is None else now - session.caught_up_at,
            )
            for broker_id, session in self._sessions.items()
            if session.heard_at is not None
        }

    def expired(self, now: float) -> list[Expiry]:
        """Return the brokers whose session has expired, the longest silent first.

        If all members of an ISR are fenced, the last one fenced stays in it, and should be the one that is most likely
        alive. Brokers stay listed until they are heard again or unregistered.
        """
        found: list[Expiry] = []
        for broker_id, session in sorted(self._sessions.items(), key=lambda entry: entry[1].alive_at):
            reason = self._expiry(session, now)
            if reason is not None:
                found.append(Expiry(broker_id, session.broker_epoch, reason))
        return found

    def _expiry(self, session: _Session, now: float) -> ExpiryReason | None:
        if now - session.alive_at > self.timeout_s:
            arrives = session.heard_at is not None and now - session.heard_at <= self.timeout_s
            deaf = arrives and session.tells and session.unheard is not None
            return ExpiryReason.DEAF if deaf else ExpiryReason.SILENT
        if session.heard_at is not None and now - session.current_at > self.image_lag_s_max:
            return ExpiryReason.LAGGING
        return None


def _counts_from(session: _Session, heartbeat: Heartbeat, now: float) -> float:
    """Return the time up to which the broker has turned its loop and received every answer."""
    if heartbeat.answered is not None:
        session.tells = True
        if session.unheard is not None and heartbeat.answered >= session.unheard[0]:
            session.unheard = None
    turned_at = now - heartbeat.loop_age_s
    if session.tells and session.unheard is not None:
        return min(turned_at, session.unheard[1])
    return turned_at


@dataclass(frozen=True, slots=True)
class ReplicaProgress:
    """The end of one replica's log by its broker's last heartbeat: the log end offset, and the leader epoch of the last
    records."""

    topic_id: bytes
    partition: int
    broker_id: int
    leader_epoch: int
    log_end_offset: int
    #: the registration of the reporting process
    broker_epoch: int = -1


@dataclass(slots=True)
class ProgressTable:
    """A table of the replicas' log end offsets from brokers' heartbeats, so that an election can choose the replica
    that is furthest along."""

    _by_partition: dict[tuple[bytes, int], dict[int, ReplicaProgress]] = field(default_factory=dict)
    #: topics with entries
    topics: set[bytes] = field(default_factory=set)
    #: by broker: its registration, and the offset of its image as of which it has reported all its logs
    _reported: dict[int, tuple[int, int]] = field(default_factory=dict)

    def clear(self) -> None:
        """Forget all log ends, since brokers report all of them to a new leader again."""
        self._by_partition.clear()
        self.topics.clear()
        self._reported.clear()

    def note(self, progress: ReplicaProgress) -> None:
        """Store a replica's reported log end in place of its earlier report."""
        self.topics.add(progress.topic_id)
        replicas = self._by_partition.setdefault((progress.topic_id, progress.partition), {})
        replicas[progress.broker_id] = progress

    def reported(self, broker_id: int, broker_epoch: int, metadata_offset: int) -> None:
        """Note that this broker's process has reported the log ends of all its replicas, as of an image at
        `metadata_offset` or later."""
        self._reported[broker_id] = (broker_epoch, metadata_offset)

    def has_reported(self, broker_id: int, broker_epoch: int, metadata_offset: int) -> bool:
        """Return whether the process registered under `broker_epoch` has reported all its log ends, as of an image at
        `metadata_offset` or later."""
        return self.reported_up_to(broker_id, broker_epoch) >= metadata_offset

    def reported_up_to(self, broker_id: int, broker_epoch: int) -> int:
        """Return the metadata offset as of which the process registered under `broker_epoch` has reported all its log
        ends; -1 if it has not."""
        epoch, offset = self._reported.get(broker_id, (-1, -1))
        return offset if epoch == broker_epoch else -1

    def forget(self, topic_ids: Iterable[bytes]) -> None:
        """Drop the log ends of deleted topics."""
        gone = set(topic_ids)
        self.topics -= gone
        for key in [key for key in self._by_partition if key[0] in gone]:
            del self._by_partition[key]

    def of(self, partitions: Iterable[tuple[bytes, int]]) -> list[ReplicaProgress]:
        """Return the reported log ends of all replicas of these partitions, given as (topic id, index)."""
        return [progress for key in partitions for progress in self._by_partition.get(key, {}).values()]

    def at(self, partition: tuple[bytes, int]) -> Mapping[int, ReplicaProgress]:
        """Return the reported log ends of one partition's replicas, by broker id."""
        return self._by_partition.get(partition, {})

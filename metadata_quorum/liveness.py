"""Which brokers are alive: the sessions that the active Raft leader keeps, by its own clock alone.

Pure: the time comes in as an argument (monotonic seconds), what to do about a silent broker goes out as a
value. A session lives while heartbeats of the registered incarnation arrive, by UDP or TCP. A heartbeat
counts from the moment the broker's event loop last turned, so a broker whose heartbeat thread lives on
beside a hung loop expires like one that is silent.

The leader answers heartbeats, and they tell which answers arrived. From the first answer on that a broker does
not hear its heartbeats no longer count: it may send and be heard, but whatever is sent to it is lost, and what
it leads stands still. So what is measured is the leader's own time since an answer of its own, no broker's clock;
a leader that stood still has sent no answers meanwhile.

A new leader starts every clock anew (`begin`): later, never earlier.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

#: A broker whose image is older than this serves stale metadata and is fenced.
DEFAULT_IMAGE_LAG_S_MAX = 10.0


class ExpiryReason(Enum):
    """Why a session ended."""

    SILENT = "no heartbeat within broker.session.timeout.ms"
    DEAF = "its heartbeats arrive, but it has heard no answer within broker.session.timeout.ms"
    LAGGING = "its metadata image has fallen too far behind"


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What one heartbeat says, whichever way it came."""

    broker_id: int
    broker_epoch: int
    incarnation: bytes
    metadata_offset: int
    loop_age_s: float
    #: the counter of a UDP heartbeat; None over TCP, where the channel excludes replays
    counter: int | None = None
    #: the highest number of its heartbeats that the broker has heard this node answer; None: it does not tell
    answered: int | None = None


@dataclass(frozen=True, slots=True)
class BrokerSighting:
    """What heartbeats told of one broker. Seconds are counted back from now."""

    metadata_offset: int
    silent_s: float
    #: how long ago its image had everything; None for never since this node counts
    caught_up_before_s: float | None


@dataclass(frozen=True, slots=True)
class Expiry:
    """A broker to fence."""

    broker_id: int
    broker_epoch: int
    reason: ExpiryReason


@dataclass(slots=True)
class _Session:
    broker_epoch: int
    incarnation: bytes
    alive_at: float
    #: when the last heartbeat arrived; None before the first
    heard_at: float | None = None
    counter: int = -1
    #: whether its heartbeats have told which answers arrive
    tells: bool = False
    #: the first answer it is not known to have heard, nor any after it: the number, and when it was sent
    unheard: tuple[int, float] | None = None
    metadata_offset: int = -1
    #: the image had everything up to the moment `current_at`
    current_at: float = 0.0
    #: once it reaches `target_offset` it has everything up to `target_at`
    target_offset: int = 0
    target_at: float = 0.0
    #: `current_at`, once it was told by a heartbeat
    caught_up_at: float | None = None


@dataclass(slots=True)
class SessionTracker:
    """The sessions of all registered brokers."""

    timeout_s: float
    image_lag_s_max: float = DEFAULT_IMAGE_LAG_S_MAX
    _sessions: dict[int, _Session] = field(default_factory=dict)

    def begin(self, brokers: Iterable[tuple[int, int, bytes]], end_offset: int, now: float) -> None:
        """This node has become the leader: every registered (id, epoch, incarnation) has a full timeout from
        now.

        Only the counters against replays are kept: every node hears every heartbeat.
        """
        before, self._sessions = self._sessions, {}
        for broker_id, broker_epoch, incarnation in brokers:
            self.register(broker_id, broker_epoch, incarnation, end_offset, now)
            known = before.get(broker_id)
            if known is not None and known.incarnation == incarnation:
                self._sessions[broker_id].counter = known.counter

    def register(
        self, broker_id: int, broker_epoch: int, incarnation: bytes, end_offset: int, now: float
    ) -> None:
        """A broker is registered under this epoch; a session of an older epoch or incarnation is replaced."""
        session = self._sessions.get(broker_id)
        if session is None or (session.broker_epoch, session.incarnation) != (broker_epoch, incarnation):
            self._sessions[broker_id] = _Session(
                broker_epoch, incarnation, now, current_at=now, target_offset=end_offset, target_at=now
            )

    def unregister(self, broker_id: int) -> None:
        """The broker is no longer part of the cluster."""
        self._sessions.pop(broker_id, None)

    def brokers(self) -> set[int]:
        """All brokers that have a session, alive or not."""
        return set(self._sessions)

    def heard(self, heartbeat: Heartbeat, end_offset: int, now: float) -> bool:
        """Notes a heartbeat; False if it is not of the registered incarnation and epoch, or a replay.

        `end_offset` is the end of the metadata stream at this moment, against which the broker's lag is
        measured.
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
        session.metadata_offset = max(session.metadata_offset, heartbeat.metadata_offset)
        if session.metadata_offset >= session.target_offset:
            session.current_at = now if session.metadata_offset >= end_offset else session.target_at
            session.target_offset, session.target_at = end_offset, now
            session.caught_up_at = session.current_at
        return True

    def answered(self, broker_id: int, number: int, now: float) -> None:
        """A heartbeat that was noted is answered now; a broker that tells has to hear that or a later answer."""
        session = self._sessions.get(broker_id)
        if session is not None and session.unheard is None:
            session.unheard = (number, now)

    def stood_still(self, seconds: float, now: float) -> None:
        """This node itself did nothing for so long, and read no heartbeats: nobody's clock has run meanwhile."""
        for session in self._sessions.values():
            session.alive_at = min(now, session.alive_at + seconds)
            session.current_at = min(now, session.current_at + seconds)
            if session.unheard is not None:
                number, sent_at = session.unheard
                session.unheard = (number, min(now, sent_at + seconds))

    def is_live(self, broker_id: int, now: float) -> bool:
        """Whether a heartbeat of this broker has arrived within the timeout (a fresh clock alone does not
        do).
        """
        session = self._sessions.get(broker_id)
        return session is not None and session.heard_at is not None and self._expiry(session, now) is None

    def metadata_offset(self, broker_id: int) -> int:
        """Where the broker's image stands as far as heard; -1 when nothing was heard."""
        session = self._sessions.get(broker_id)
        return -1 if session is None else session.metadata_offset

    def sightings(self, now: float) -> dict[int, BrokerSighting]:
        """Every broker that was heard since this node counts."""
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
        """The brokers whose session has ended, the longest silent first: where all members of an ISR are fenced, the
        last one stays in it, and should be the one most likely to be there. They stay listed until they are heard again
        or unregistered.
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
    """The time up to which the broker is known to have turned its loop, and to have heard every answer."""
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
    """How far one replica's log reaches, as its broker said last."""

    topic_id: bytes
    partition: int
    broker_id: int
    leader_epoch: int
    log_end_offset: int
    #: the registration of the process that said it
    broker_epoch: int = -1


@dataclass(slots=True)
class ProgressTable:
    """What heartbeats said about log end offsets, so that an election can take the replica furthest along."""

    _by_partition: dict[tuple[bytes, int], dict[int, ReplicaProgress]] = field(default_factory=dict)
    #: what something is known about
    topics: set[bytes] = field(default_factory=set)
    #: by broker: its registration, and as of which offset of its image it has told of all its logs
    _told: dict[int, tuple[int, int]] = field(default_factory=dict)

    def clear(self) -> None:
        """Forgets everything: a new leader is told anew."""
        self._by_partition.clear()
        self.topics.clear()
        self._told.clear()

    def note(self, progress: ReplicaProgress) -> None:
        """Replaces what was known about this replica."""
        self.topics.add(progress.topic_id)
        replicas = self._by_partition.setdefault((progress.topic_id, progress.partition), {})
        replicas[progress.broker_id] = progress

    def told(self, broker_id: int, broker_epoch: int, metadata_offset: int) -> None:
        """This broker has told where each of its logs ended when its image was at this offset, or later."""
        self._told[broker_id] = (broker_epoch, metadata_offset)

    def has_told(self, broker_id: int, broker_epoch: int, metadata_offset: int) -> bool:
        """Whether this registration has told of all its logs, as of an image at this offset or beyond."""
        return self.told_up_to(broker_id, broker_epoch) >= metadata_offset

    def told_up_to(self, broker_id: int, broker_epoch: int) -> int:
        """As of which offset of its image this registration has told of all its logs; -1 if it has not."""
        epoch, offset = self._told.get(broker_id, (-1, -1))
        return offset if epoch == broker_epoch else -1

    def forget(self, topic_ids: Iterable[bytes]) -> None:
        """Drops deleted topics."""
        gone = set(topic_ids)
        self.topics -= gone
        for key in [key for key in self._by_partition if key[0] in gone]:
            del self._by_partition[key]

    def of(self, partitions: Iterable[tuple[bytes, int]]) -> list[ReplicaProgress]:
        """All that is known about these partitions."""
        return [progress for key in partitions for progress in self._by_partition.get(key, {}).values()]

    def at(self, partition: tuple[bytes, int]) -> Mapping[int, ReplicaProgress]:
        """What is known about one partition, by broker."""
        return self._by_partition.get(partition, {})

"""The actions that the active Raft leader takes on its own: fence and unfence brokers, let them stop, prefer leaders,
elect last known members, expire transactions, remove unused transactional ids and expired delegation tokens.

Decisions depend on the image, the session timers and the heartbeats, and take effect only as proposed commands. The
state machine checks each command again when it is applied, so an outdated decision does no harm. A proposed action is
not proposed again until its answer arrives.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from ..protocol.cluster.cluster_image import (
    NO_LEADER,
    UNKNOWN_TIME_MS,
    BrokerState,
    ClusterImage,
    PartitionState,
    TopicState,
)
from ..protocol.cluster.partition_change import PartitionChange
from ..protocol.features import FEATURES, OURS
from ..protocol.messages.broker_commands import BeginControlledShutdown, FenceBroker, UnfenceBroker
from ..protocol.messages.cluster_commands import FormCluster, InitialFeature
from ..protocol.messages.config_commands import (
    AlterConfigs,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    ResourceType,
)
from ..protocol.messages.metadata_records import Record, TopicRemovedRecord
from ..protocol.messages.partition_commands import (
    ElectionPartition,
    ElectionType,
    ElectLastKnown,
    ElectLeaders,
    ReplicaLogEnd,
)
from ..protocol.messages.token_commands import RemoveExpiredTokens
from ..protocol.messages.transaction_commands import ExpireTransactions, ForgetTransactionalIds
from ..protocol.messages.transaction_records import TransactionalIdRemovedRecord, TransactionRecord
from ..protocol.messages.user_commands import ScramCredentialChange
from .config import DutySettings
from .election_log_ends import election_log_ends
from .last_known import LastKnownWatch
from .liveness import Heartbeat, ProgressTable, ReplicaProgress, SessionTracker
from .token_expiry import ExpiredTokens
from .transaction_deadlines import TransactionClocks, UnusedIds

logger = logging.getLogger(__name__)

LeaderCommand = (
    AlterConfigs
    | BeginControlledShutdown
    | ElectLastKnown
    | ElectLeaders
    | ExpireTransactions
    | FenceBroker
    | ForgetTransactionalIds
    | FormCluster
    | RemoveExpiredTokens
    | UnfenceBroker
)

#: Kafka's limit per check
PREFERRED_ELECTIONS_MAX = 1000
LAST_KNOWN_ELECTIONS_MAX = 1000
#: Ticks further apart than this part of the session timeout show that this node was paused, not the brokers.
_STOOD_STILL_TIMEOUTS = 0.5


@dataclass(frozen=True, slots=True)
class Wish:
    """The requests in a broker's heartbeat: to be unfenced, or to shut down in order."""

    unfence: bool
    shut_down: bool


class LeaderDuties:
    """The actions that this node takes on its own while it is the active leader. The time is passed in as monotonic
    seconds.

    `propose(command, done)` puts one of the leader's commands into the log and calls `done` when its outcome is known
    or will never be known.
    """

    def __init__(
        self,
        image: Callable[[], ClusterImage],
        sessions: SessionTracker,
        propose: Callable[[LeaderCommand, Callable[[], None]], None],
        *,
        cluster_id: str,
        imbalance_check_interval_s: float,
        settings: DutySettings | None = None,
        defaults: Mapping[str, str] | None = None,
        first_users: Sequence[ScramCredentialChange] = (),
        wall_ms: Callable[[], int] = lambda: UNKNOWN_TIME_MS,
    ) -> None:
        """Set the parameters; all intervals are in seconds.

        `defaults` are settings for all brokers unless set dynamically. `first_users` are the passwords that a new
        cluster starts with. `wall_ms` returns the time of day in ms since 1970; -1 if unknown.
        """
        settings = settings or DutySettings()
        self.active = False
        self.progress = ProgressTable()
        self._image = image
        self._sessions = sessions
        self._propose = propose
        self._cluster_id = cluster_id
        self._imbalance_check_interval_s = imbalance_check_interval_s
        self._imbalance_percentage = settings.imbalance_percentage
        self._defaults = defaults or {}
        self._first_users = first_users
        self._wall_ms = wall_ms
        self._next_imbalance_check = 0.0
        self._ticked_at = 0.0
        self._proposed: set[tuple[str, int]] = set()
        #: fenced brokers, and the end of the stream when this was noticed: their image must pass it
        self._fenced_at: dict[int, int] = {}
        #: brokers shutting down that lead nothing any more, and the end of the stream when this was noticed
        self._moved_at: dict[int, int] = {}
        self._last_known = LastKnownWatch(ClusterImage())
        self._clocks = TransactionClocks()
        self._unused = UnusedIds(
            expiration_ms=settings.transactional_id_expiration_ms,
            check_interval_s=settings.unused_ids_check_interval_s,
        )
        self._expired_tokens = ExpiredTokens(check_interval_s=settings.expired_tokens_check_interval_s)

    def lead(self, now: float) -> None:
        """Begin the leader's duties: all timers restart, and reports from brokers to earlier leaders are dropped."""
        image = self._image()
        self.active = True
        self.progress.clear()
        self._proposed.clear()
        self._fenced_at.clear()
        self._moved_at.clear()
        self._last_known = LastKnownWatch(image)
        self._clocks.begin(image.transactions, now)
        self._unused.begin(image.transactions, now)
        self._expired_tokens.begin(now)
        self._next_imbalance_check = now + self._imbalance_check_interval_s
        self._ticked_at = now
        self._sessions.begin(_registrations(image), image.offset, now)
        self.image_changed(now)
        if not image.cluster_id:
            self._once(
                "form",
                -1,
                FormCluster(
                    cluster_id=self._cluster_id,
                    features=[InitialFeature(feature=name, level=FEATURES[name].most) for name in OURS],
                    credentials=list(self._first_users),
                ),
            )
        self._record_defaults(image)

    def _record_defaults(self, image: ClusterImage) -> None:
        """Make the settings of this node's file the cluster's, since elections and brokers must use the same values."""
        present = image.configs.get((ResourceType.BROKER, ""), {})
        changes = [
            ConfigChange(name=name, operation=ConfigOperation.SET, value=value)
            for name, value in sorted(self._defaults.items())
            if name not in present
        ]
        if changes:
            resource = ConfigResource(resource_type=ResourceType.BROKER, changes=changes)
            self._once("defaults", -1, AlterConfigs(resources=[resource]))

    def follow(self) -> None:
        """Stop acting, since this node no longer leads."""
        self.active = False

    def noted(
        self, records: Iterable[Record], now: float, partitions: Iterable[PartitionChange] = ()
    ) -> None:
        """Update the timers of transactions and the watch of leaderless partitions after one command's changes of the
        image; does nothing unless this node leads."""
        if not self.active:
            return
        image = self._image()
        self._last_known.changed(partitions, image.offset)
        transactions = image.transactions.by_id
        for record in records:
            if isinstance(record, TransactionRecord | TransactionalIdRemovedRecord):
                transaction = transactions.get(record.transactional_id)
                self._clocks.changed(record.transactional_id, transaction, now)
                self._unused.changed(transaction)
            elif isinstance(record, TopicRemovedRecord):
                self._last_known.forget(record.topic_id)

    def image_changed(self, now: float) -> None:
        """Register and unregister brokers' sessions after the image has changed. Called on every node, leader or not,
        so that the counters against replayed heartbeats are kept."""
        image = self._image()
        for broker_id, broker_epoch, incarnation in _registrations(image):
            self._sessions.register(broker_id, broker_epoch, incarnation, image.offset, now)
        for broker_id in self._sessions.brokers() - image.brokers.keys():
            self._sessions.unregister(broker_id)
        if len(self.progress.topics) > len(image.topics_by_id):
            self.progress.forget(self.progress.topics - image.topics_by_id.keys())
        if self.active:
            self._note_fences(image)

    def _note_fences(self, image: ClusterImage) -> None:
        for broker_id, broker in image.brokers.items():
            if broker.fenced:
                self._fenced_at.setdefault(broker_id, image.offset)
            else:
                self._fenced_at.pop(broker_id, None)
            if not broker.shutting_down:
                self._moved_at.pop(broker_id, None)
            elif broker_id not in self._moved_at and not any(_led_by(image, broker_id)):
                self._moved_at[broker_id] = image.offset

    def taking_part(self) -> set[int]:
        """Return the brokers that are not fenced."""
        return {broker_id for broker_id, broker in self._image().brokers.items() if not broker.fenced}

    def heard(self, heartbeat: Heartbeat, now: float) -> bool:
        """Note a broker's heartbeat. Return False if it is a replay, or does not come from the registered incarnation
        of the broker's process."""
        return self._sessions.heard(heartbeat, self._image().offset, now)

    def answers(self, broker_id: int, number: int, now: float) -> bool:
        """Return whether this node answers a valid heartbeat of a broker. Only the active leader does, and from then on
        checks that the broker receives the answers."""
        if self.active:
            self._sessions.answered(broker_id, number, now)
        return self.active

    def wishes(self, heartbeat: Heartbeat, wish: Wish, now: float) -> bool:
        """Act on a broker's request, in a valid heartbeat, to be unfenced or to shut down. Return True if the broker
        may stop now, because all live brokers know its partitions' new leaders."""
        broker = self._image().brokers.get(heartbeat.broker_id)
        if not self.active or broker is None or broker.broker_epoch != heartbeat.broker_epoch:
            return False
        if wish.shut_down:
            return self._shut_down(heartbeat.broker_id, broker, now)
        if wish.unfence and broker.fenced and self._sessions.is_live(heartbeat.broker_id, now):
            passed = heartbeat.metadata_offset >= self._fenced_at.get(heartbeat.broker_id, 0)
            if passed:
                self._once(
                    "unfence",
                    heartbeat.broker_id,
                    UnfenceBroker(broker_id=heartbeat.broker_id, broker_epoch=broker.broker_epoch),
                )
        return False

    def _shut_down(self, broker_id: int, broker: BrokerState, now: float) -> bool:
        if broker.fenced:
            return True
        if not broker.shutting_down:
            if self._is_proposed("shutdown", broker_id):
                return False  # scanning all partitions that it leads takes long, and heartbeats continue
            self._once(
                "shutdown",
                broker_id,
                BeginControlledShutdown(
                    broker_id=broker_id,
                    broker_epoch=broker.broker_epoch,
                    progress=self._progress_of(self._image(), broker_id),
                ),
            )
            return False
        moved_at = self._moved_at.get(broker_id)
        if moved_at is None:
            return False
        return all(
            self._sessions.metadata_offset(other) >= moved_at
            for other, state in self._image().brokers.items()
            if not state.fenced and self._sessions.is_live(other, now)
        )

    def fence(self, broker_id: int, broker_epoch: int) -> bool:
        """Propose to fence a broker that counts as dead. Its partitions get new leaders, chosen by the reported log
        ends of their replicas. Return whether a command was proposed."""
        image = self._image()
        broker = image.brokers.get(broker_id)
        if not self.active or broker is None or broker.fenced or broker.broker_epoch != broker_epoch:
            return False
        if self._is_proposed("fence", broker_id):
            return False  # scanning all partitions that it leads takes long, and ticks continue
        return self._once(
            "fence",
            broker_id,
            FenceBroker(
                broker_id=broker_id,
                broker_epoch=broker_epoch,
                progress=self._progress_of(image, broker_id),
                now_ms=self._wall_ms(),
            ),
        )

    def _progress_of(self, image: ClusterImage, broker_id: int) -> list[ReplicaLogEnd]:
        """Return the reported log ends of replicas of the partitions that this broker leads, where they may decide an
        election."""
        return [_log_end(entry) for entry in election_log_ends(image, self.progress, broker_id)]

    def leaderless_progress(self, partitions: Iterable[ElectionPartition] | None) -> list[ReplicaLogEnd]:
        """Return the reported log ends of the replicas of leaderless partitions among these; None stands for all
        partitions of the cluster."""
        image = self._image()
        if partitions is None:
            return [_log_end(entry) for entry in self.progress.of(_led_by(image, NO_LEADER))]
        wanted = dict.fromkeys((partition.topic_id, partition.partition) for partition in partitions)
        return [
            _log_end(entry) for entry in self.progress.of(key for key in wanted if _nobody_leads(image, key))
        ]

    def tick(self, now: float) -> None:
        """Run the timed duties. Call this many times per session timeout; a late call shows that this node stood
        still."""
        if not self.active:
            return
        since, self._ticked_at = now - self._ticked_at, now
        if since > self._sessions.timeout_s * _STOOD_STILL_TIMEOUTS:
            self._sessions.stood_still(since, now)
        for expiry in self._sessions.expired(now):
            if self.fence(expiry.broker_id, expiry.broker_epoch):
                logger.info("broker %d: %s", expiry.broker_id, expiry.reason.value)
        self._elect_last_known()
        self._end_transactions(now)
        self._forget_tokens(now)
        if now >= self._next_imbalance_check:
            self._next_imbalance_check = now + self._imbalance_check_interval_s
            self._elect_preferred()

    def _elect_last_known(self) -> None:
        """Elect one of the last known members in partitions where all of them are back and have reported their log
        ends."""
        ready = islice(self._last_known.ready(self._image(), self.progress), LAST_KNOWN_ELECTIONS_MAX)
        log_ends = list(chain.from_iterable(ready))
        if log_ends:
            self._once("last known", -1, ElectLastKnown(progress=[_log_end(entry) for entry in log_ends]))

    def _end_transactions(self, now: float) -> None:
        """Propose to expire transactions and to remove unused ids. Nothing is taken from the timers while the last
        proposal is pending, since it would be lost."""
        if not self._is_proposed("expire") and (expire := self._clocks.expire(now)):
            self._once("expire", -1, expire)
        if not self._is_proposed("forget") and (
            forget := self._unused.forget(self._image().transactions, now, self._wall_ms())
        ):
            self._once("forget", -1, forget)

    def _forget_tokens(self, now: float) -> None:
        if not self._is_proposed("tokens") and (
            remove := self._expired_tokens.remove(self._image().delegation_tokens, now, self._wall_ms())
        ):
            self._once("tokens", -1, remove)

    def _elect_preferred(self) -> None:
        partitions = sorted(_not_preferred(self._image(), self._imbalance_percentage))[
            :PREFERRED_ELECTIONS_MAX
        ]
        if partitions:
            wanted = [ElectionPartition(topic_id=topic_id, partition=index) for topic_id, index in partitions]
            self._once("preferred", -1, ElectLeaders(election_type=ElectionType.PREFERRED, partitions=wanted))

    def _is_proposed(self, what: str, broker_id: int = -1) -> bool:
        return (what, broker_id) in self._proposed

    def _once(self, what: str, broker_id: int, command: LeaderCommand) -> bool:
        """Propose a command of the leader; False while an equal command, with the same `what` and broker, is
        pending."""
        key = (what, broker_id)
        if key in self._proposed:
            return False
        self._proposed.add(key)
        self._propose(command, lambda: self._proposed.discard(key))
        return True


def _log_end(entry: ReplicaProgress) -> ReplicaLogEnd:
    return ReplicaLogEnd(
        topic_id=entry.topic_id,
        partition=entry.partition,
        broker_id=entry.broker_id,
        leader_epoch=entry.leader_epoch,
        log_end_offset=entry.log_end_offset,
        broker_epoch=entry.broker_epoch,
    )


def _registrations(image: ClusterImage) -> list[tuple[int, int, bytes]]:
    return [(broker_id, state.broker_epoch, state.incarnation) for broker_id, state in image.brokers.items()]


def _nobody_leads(image: ClusterImage, key: tuple[bytes, int]) -> bool:
    topic = image.topics_by_id.get(key[0])
    state = None if topic is None else topic.partitions.get(key[1])
    return state is not None and state.leader == NO_LEADER


def _led_by(image: ClusterImage, broker_id: int) -> Iterator[tuple[bytes, int]]:
    for topic, index, partition in _partitions(image):
        if partition.leader == broker_id:
            yield topic.id, index


def _not_preferred(image: ClusterImage, tolerated_percentage: int) -> Iterable[tuple[bytes, int]]:
    """Yield partitions whose first replica could lead and does not, for brokers with too many of them."""
    able = {broker_id for broker_id, state in image.brokers.items() if state.usable}
    preferring: Counter[int] = Counter()
    led_by_others: dict[int, list[tuple[bytes, int]]] = {}
    for topic, index, partition in _partitions(image):
        preferred = partition.replicas[0]
        preferring[preferred] += 1
        may_lead = preferred in able and preferred in partition.isr
        if may_lead and partition.leader != preferred and preferred not in partition.offline_replicas:
            led_by_others.setdefault(preferred, []).append((topic.id, index))
    for broker_id, partitions in led_by_others.items():
        if len(partitions) * 100 > preferring[broker_id] * tolerated_percentage:
            yield from partitions


def _partitions(image: ClusterImage) -> Iterator[tuple[TopicState, int, PartitionState]]:
    for topic in image.topics.values():
        for index, partition in topic.partitions.items():
            yield topic, index, partition

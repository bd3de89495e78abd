"""All replicas of this broker. This module creates and deletes them, gives them the roles of the cluster image, and
holds their shared parts: fetchers, fetch sessions, ISR updates, flushes, timers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ....protocol.cluster.image_delta import ImageDelta
from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.config_commands import ResourceType
from ....protocol.session.node_proof import NodeCredentials
from ....protocol.settings.config_fields import setting
from ...runtime import clocks
from ...runtime.change_set import ChangeSet
from ..fetch_values import PartitionKey
from ..follower.fetcher import Fetchers, LinkSettings
from ..follower.fetching import FetchLimits
from ..leader.follower_session import WATERMARK_DELAY_S
from ..leader.follower_sessions import FollowerSessions
from ..leader.isr_updates import Submit
from ..replica.flusher import Flusher
from ..replica.partition import Partition
from ..replica.role_check import check_role
from ..replica.settings import TopicSettings
from ..roles.leader import KnownBroker
from .catch_up import CatchUpThrottles
from .damage import Damage
from .isr_upkeep import IsrUpkeep
from .log_ends import ReplicaLogEnds
from .mirror_copies import MirrorCopies
from .offline import OfflineReplicas, Report, tell_nobody
from .rebuilding import Rebuild, rebuild_nothing
from .replica_making import ReplicaLogs, ReplicaMaking
from .role_listeners import RoleListener, RoleListeners
from .unwritable import ReportWritable, UnwritableReplicas, report_to_nobody

if TYPE_CHECKING:
    from ....protocol.cluster.cluster_image import ClusterImage, PartitionState, TopicState

logger = logging.getLogger(__name__)

_MISSING_LOGS_INTERVAL_S = 1.0
_REBUILDING_INTERVAL_S = 5.0


@dataclass(frozen=True, slots=True)
class ReplicasConfig:
    """The broker's configuration for replication. The ISRs are checked every half of `replica.lag.time.max.ms`."""

    credentials: NodeCredentials
    inter_broker_listener: str
    lag_time_max_ms: int = setting("replica.lag.time.max.ms")
    watermark_checkpoint_interval_ms: int = setting("replica.high.watermark.checkpoint.interval.ms")
    watermark_delay_s: float = WATERMARK_DELAY_S
    """Delay of high watermarks; see `follower_session`."""
    limits: FetchLimits = field(default_factory=FetchLimits)
    link: LinkSettings = field(default_factory=LinkSettings)

    @property
    def broker_id(self) -> int:
        """Id of this broker."""
        return self.credentials.node_id


class Replicas:
    """The replicas of all partitions that this broker holds, by topic id and partition index. One writer: the event
    loop. Roles change only in `image_changed`.
    """

    def __init__(
        self,
        config: ReplicasConfig,
        logs: ReplicaLogs,
        image: ClusterImage,
        settings_of: Callable[[str], TopicSettings],
        submit_isr: Submit,
        broker_epoch: Callable[[], int],
        report_offline: Report = tell_nobody,
        renew: Rebuild = rebuild_nothing,
        on_lost_broker: Callable[[int], None] = lambda _broker_id: None,
        report_writability: ReportWritable = report_to_nobody,
    ) -> None:
        self.config = config
        self.image = image
        self._logs = logs
        self._settings_of = settings_of
        self._known_brokers = image.brokers
        self._by_key: dict[PartitionKey, Partition] = {}
        self._by_name: dict[tuple[str, int], Partition] = {}
        self.moved: ChangeSet[Partition] = ChangeSet()
        """Changed replicas, for periodic checks. Idle replicas are not checked."""
        self.log_ends = ReplicaLogEnds(self._by_key, self.moved.since(lambda: self))
        """Log ends that are reported to the quorum."""
        self._watermarks_moved = self.moved.since(lambda: self)
        self.offline = OfflineReplicas(report_offline)
        self.unwritable = UnwritableReplicas(report_writability, self.offline)
        self.damage = Damage(
            config.broker_id,
            logs,
            self.offline,
            renew,
            image=lambda: self.image,
            is_held=self.holds,
            take_offline=self.take_offline,
            look_again=self.look_again,
        )
        self.making = ReplicaMaking(logs, self, settings_of, self.offline, self.damage.found, self._make)
        self._copies = MirrorCopies(self._look_at, self.take_offline)
        self._listeners = RoleListeners()
        self.on_made: Callable[[Partition], None] = lambda _: None
        """Callback for each replica that is created in a later loop iteration."""
        self._timers: list[asyncio.TimerHandle] = []
        self._closed = False
        self._loop = asyncio.get_running_loop()
        self._throttles = CatchUpThrottles(config.broker_id, self._loop.time, lambda: self.image)
        self._throttles.reconfigure()
        self.sessions = FollowerSessions(
            self,
            self._loop,
            throttle=self._throttles.leader,
            watermark_delay_s=config.watermark_delay_s,
        )
        self._flusher = Flusher(self._flushed, self.failed)
        self._isrs = IsrUpkeep(
            self.moved.since(lambda: self),
            submit_isr,
            lambda: self.image.brokers,
            self.monotonic_ms,
            self.sessions,
            self._loop,
        )
        self._fetchers = Fetchers(
            config.credentials,
            config.limits,
            config.link,
            self._endpoint_of,
            broker_epoch,
            self.failed,
            self._throttles,
            on_lost_broker,
        )

    def contact_age_s(self, broker_id: int) -> float | None:
        """Return the seconds since another broker's last fetch here, or its last answer to a fetch; None if there was
        neither."""
        times = (self.sessions.heard_at(broker_id), self._fetchers.heard_at(broker_id))
        heard = [heard_at for heard_at in times if heard_at is not None]
        return self._loop.time() - max(heard) if heard else None

    # Look-ups

    def get(self, topic: str, index: int) -> Partition:
        """Return this broker's replica of the partition. Raises KafkaError: NOT_LEADER_OR_FOLLOWER if other brokers
        have it, else UNKNOWN_TOPIC_OR_PARTITION.
        """
        partition = self._by_name.get((topic, index))
        if partition is None:
            raise self._absent(
                self.image.topics.get(topic), topic, index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
        return partition

    def find(self, topic: str, index: int) -> Partition | None:
        """Return this broker's replica of the partition; None if it has none."""
        return self._by_name.get((topic, index))

    def find_by_id(self, topic_id: bytes, index: int) -> Partition | None:
        """Return this broker's replica of the partition; None if it has none."""
        return self._by_key.get((topic_id, index))

    def get_by_id(self, topic_id: bytes, index: int) -> Partition:
        """Return the replica. Raises KafkaError: NOT_LEADER_OR_FOLLOWER if other brokers have it, UNKNOWN_TOPIC_ID if
        the topic is unknown, UNKNOWN_TOPIC_OR_PARTITION if it has no such partition."""
        partition = self._by_key.get((topic_id, index))
        if partition is None:
            topic = self.image.topics_by_id.get(topic_id)
            raise self._absent(topic, topic_id.hex(), index, ErrorCode.UNKNOWN_TOPIC_ID)
        return partition

    def _absent(self, topic: TopicState | None, name: str, index: int, unknown: ErrorCode) -> KafkaError:
        if topic is None:
            return KafkaError(unknown, f"there is no topic {name}")
        if index not in topic.partitions:
            return KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic.name} has no partition {index}"
            )
        if (topic.id, index) in self.offline:
            return KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"the replica of {topic.name}-{index} on broker {self.config.broker_id} is offline",
            )
        return KafkaError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"broker {self.config.broker_id} has no replica of {topic.name}-{index}",
        )

    def holds(self, partition: Partition) -> bool:
        """Return whether `partition` is still this broker's replica: it was neither removed nor replaced by another
        object.
        """
        return self._by_key.get((partition.topic_id, partition.index)) is partition

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._by_key.values())

    def __len__(self) -> int:
        return len(self._by_key)

    def check(self) -> None:
        """Check all replicas against themselves and the image, between changes of the image. Raises AssertionError on a
        contradiction."""
        if {id(partition) for partition in self._by_name.values()} != set(map(id, self._by_key.values())):
            raise AssertionError("replicas by name and by topic id differ")
        for key, partition in self._by_key.items():
            partition.check()
            self._isrs.verify(partition)
            if partition not in self._watermarks_moved:
                self._check_checkpoint(partition)
            if key in self.offline:
                raise AssertionError(f"{partition!r} is offline, and here")
            topic = self.image.topics_by_id.get(key[0])
            state = None if topic is None else topic.partitions.get(key[1])
            if state is not None:
                check_role(partition, state, self.broker_id)

    def _check_checkpoint(self, partition: Partition) -> None:
        known = self._logs.high_watermark(partition.topic, partition.index)
        if known != partition.high_watermark:
            raise AssertionError(
                f"{partition!r} has high watermark {partition.high_watermark}, {known} is written down"
            )

    # Services for partitions and sessions

    @property
    def broker_id(self) -> int:
        return self.config.broker_id

    @property
    def brokers(self) -> Mapping[int, KnownBroker]:
        return self.image.brokers

    monotonic_ms = staticmethod(clocks.monotonic_ms)
    wall_ms = staticmethod(clocks.wall_ms)

    def flush(self, partition: Partition) -> None:
        self._flusher.request(partition)

    def flush_later(self, partition: Partition, delay_ms: int) -> None:
        self._loop.call_later(delay_ms / 1000, self._flush_time_over, partition)

    def _flush_time_over(self, partition: Partition) -> None:
        if not self._closed and self.holds(partition):
            partition.flush_time_over()

    def is_to_be_made(self, key: PartitionKey) -> bool:
        return self.making.is_to_be_made(key)

    def broker_epoch_of(self, broker_id: int) -> int:
        broker = self.image.brokers.get(broker_id)
        return -1 if broker is None else broker.broker_epoch

    def follower_advanced(self, partition: Partition, broker_id: int) -> None:
        self._isrs.follower_advanced(partition, broker_id)

    def _flushed(self, partition: Partition, offset: int) -> None:
        partition.flushed(offset)
        if partition.follower is not None:
            self._fetchers.again(partition)

    def _endpoint_of(self, broker_id: int) -> tuple[str, int] | None:
        broker = self.image.brokers.get(broker_id)
        if broker is None:
            return None
        wanted = self.config.inter_broker_listener
        return next(
            ((listener.host, listener.port) for listener in broker.listeners if listener.name == wanted), None
        )

    # The cluster image

    def listen(self, listener: RoleListener) -> None:
        """Add a listener for elections and resignations. It is notified at once of existing leaderships."""
        self._listeners.add(listener)
        for partition in self._by_key.values():
            if partition.leader is not None:
                listener.elected(partition)

    def image_changed(self, image: ClusterImage, delta: ImageDelta) -> None:
        """Create, remove and give roles to replicas after a change that `image` already contains. New leaders accept
        records when this returns.
        """
        if self._closed:
            return
        self.image = image
        if image.brokers is not self._known_brokers:
            # A snapshot of the feed has a separate table, even if the image remains the same object.
            self._known_brokers = image.brokers
            for partition in self._by_key.values():
                if partition.leader is not None:
                    partition.leader.brokers = image.brokers
        if delta.removed_topics:
            for gone in [
                partition for key, partition in self._by_key.items() if key[0] in delta.removed_topics
            ]:
                self._remove(gone, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                self.unwritable.discard((gone.topic_id, gone.index))
            for lost in [key for key in self.offline if key[0] in delta.removed_topics]:
                self._not_offline(lost)
        reconfigured = self._reconfigured(delta.configs)
        self._tighten(reconfigured)
        following: list[tuple[Partition, PartitionState]] = []
        for key in self._due_now(delta.partitions):
            state = self._assigned(key)
            if state is None:
                self._have_no_longer(key)
                continue
            replica = self._by_key.get(key)
            if key in self.unwritable and self.broker_id not in state.offline_replicas:
                self.unwritable.again(key)
            if replica is None:
                replica = self._new_replica(key, state)
            if replica is None:
                continue
            if state.leader == self.broker_id:
                self._lead(replica, state)
            else:
                following.append((replica, state))
        for replica, state in following:
            self._follow(replica, state)
        for broker_id in delta.brokers:
            self._broker_changed(broker_id, delta.partitions)
        if delta.mirrors:
            for partition in self._by_key.values():
                self._copies.look_at(partition, image.mirrors)
        if delta.configs:
            self._throttles.reconfigure()
            self._reconfigure(reconfigured)
        self.damage.rebuilding.look()

    def _reconfigured(self, configs: Collection[tuple[int, str]]) -> list[Partition]:
        """Return the partitions whose settings have changed: those of changed topics, or all if a broker's settings
        have."""
        if any(kind == ResourceType.BROKER for kind, _ in configs):
            return list(self._by_key.values())
        topics = [self.image.topics.get(name) for kind, name in configs if kind == ResourceType.TOPIC]
        keys = [(topic.id, index) for topic in topics if topic is not None for index in topic.partitions]
        return [self._by_key[key] for key in keys if key in self._by_key]

    def _tighten(self, partitions: Iterable[Partition]) -> None:
        """Apply a higher min.insync.replicas before the ISRs of the same change; a lower one is applied after them.

        By the quorum's rules a replica that left an ISR below the minimum has all acknowledged records, and may lead
        (KIP-966).
        """
        for partition in partitions:
            partition.tighten(self._settings_of(partition.topic).replication.min_in_sync)

    def _due_now(self, partitions: set[PartitionKey]) -> set[PartitionKey]:
        """Return the partitions to handle in this loop iteration: all except new replicas beyond the first few. All
        brokers create replicas in the same order, so that a partition can be used long before all exist.
        """
        new = sorted(key for key in partitions if key not in self._by_key and self._assigned(key) is not None)
        return partitions.difference(self.making.postponed(new)) if new else partitions

    def _assigned(self, key: PartitionKey) -> PartitionState | None:
        """Return the state of a partition in the cluster image; None if this broker has no replica of the partition."""
        topic = self.image.topics_by_id.get(key[0])
        state = None if topic is None else topic.partitions.get(key[1])
        return state if state is not None and self.broker_id in state.replicas else None

    def _look_at(self, partitions: set[PartitionKey]) -> None:
        self.image_changed(self.image, ImageDelta(partitions=partitions))

    def _make(self, partitions: set[PartitionKey]) -> None:
        """Create the queued replicas whose loop iteration has come."""
        self._look_at(partitions)
        self.sessions.replicas_made(partitions)
        for key in partitions:
            made = self._by_key.get(key)
            if made is not None:
                self.on_made(made)

    def _lead(self, partition: Partition, state: PartitionState) -> None:
        leader = partition.leader
        if (leader is None or leader.leader_epoch != state.leader_epoch) and not self._may_begin(
            partition, state.leader_epoch
        ):
            self._play_no_role(partition)
        elif partition.become_leader(state):
            logger.info("%r: leader in epoch %d", partition, state.leader_epoch)
            self._listeners.elected(partition)
        else:
            self._isrs.offer_places(partition)

    def _may_begin(self, partition: Partition, leader_epoch: int) -> bool:
        """Return whether the replica may lead in `leader_epoch`. A mirror's copy may lead once its log ends at the
        offset where it has to continue. The replica stops following another broker.
        """
        self._fetchers.forget(partition)
        mirrors = self.image.mirrors
        self._copies.look_at(partition, mirrors)
        return self._copies.goes_on_where_it_should(partition, mirrors, leader_epoch)

    def _play_no_role(self, partition: Partition) -> None:
        """Make the replica neither leader nor follower until the offset is known at which its copy has to end."""
        if partition.leader is not None or partition.follower is not None:
            self._retire(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _retire(self, partition: Partition, error: ErrorCode) -> None:
        led = partition.leader is not None
        partition.retire(error)
        if led:
            self._listeners.resigned(partition)

    def _follow(self, partition: Partition, state: PartitionState) -> None:
        led = partition.leader is not None
        if not partition.become_follower(state):
            return
        if led:
            self._listeners.resigned(partition)
        self._fetch(partition, state.leader)

    def _fetch(self, partition: Partition, leader_id: int) -> None:
        """Fetch from the leader. Fetch nothing if there is no leader, or the records could not be written."""
        if leader_id < 0 or (partition.topic_id, partition.index) in self.unwritable:
            self._fetchers.forget(partition)
        else:
            self._fetchers.follow(partition, leader_id)

    def cannot_write(self, keys: frozenset[PartitionKey]) -> None:
        """Mark these replicas as unwritable for now, and all others as writable. Unwritable replicas can be read.

        Where possible, the quorum elects other leaders and removes unwritable replicas from the ISR, so that no
        producer waits for them. A replica follows again once its disk has free space.
        """
        for key in self.unwritable.become(keys - frozenset(self.offline)):
            partition = self._by_key.get(key)
            if partition is not None and partition.follower is not None:
                self._fetch(partition, partition.follower.leader_id)

    def _new_replica(self, key: PartitionKey, state: PartitionState) -> Partition | None:
        """Create the replica. Returns None if its log cannot be created, or is lost."""
        if key in self.offline:
            if self.broker_id not in state.offline_replicas and not self.damage.rebuilding.is_asked(key):
                self.offline.again(key)
            return None
        topic_id, index = key
        topic = self.image.topics_by_id[topic_id]
        partition = self.making.make(topic, index)
        if partition is None:
            return None
        self._by_key[key] = self._by_name[topic.name, index] = partition
        self.moved.note(partition)
        return partition

    def _have_no_longer(self, key: PartitionKey) -> None:
        """Remove the replica, which the image no longer assigns to this broker."""
        reassigned = self._by_key.get(key)
        if reassigned is not None:
            self._remove(reassigned, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._not_offline(key)

    def _remove(self, partition: Partition, error: ErrorCode) -> None:
        """Delete the replica. Waiting callers get `error`, which makes them look elsewhere or give up."""
        if self._by_key.pop((partition.topic_id, partition.index), None) is None:
            return
        self._forget(partition, error)
        self.making.removals.add(partition.topic, partition.topic_id, partition.index)

    def failed(self, partition: Partition, error: Exception) -> None:
        """Take the replica offline if its log has failed. Other errors may pass: a full disk, or a disagreement with
        the leader that the next fetch settles."""
        if partition.log.failure is None:
            logger.error("%r could not follow: %s", partition, error)
            return
        if self._by_key.get((partition.topic_id, partition.index)) is not partition:
            return  # The replica was deleted, which closed the log during a flush.
        logger.error("%r goes offline: %s", partition, error)
        self.take_offline([(partition.topic_id, partition.index)])

    def take_offline(self, keys: Iterable[PartitionKey]) -> None:
        """Mark replicas as offline until this broker restarts, since their logs are lost, and report them to the
        quorum.
        """
        lost = list(keys)
        for key in lost:
            self.making.lost(key)
            self.damage.rebuilding.discard(key)
            self.unwritable.discard(key)
            partition = self._by_key.pop(key, None)
            if partition is not None:
                self._forget(partition, ErrorCode.KAFKA_STORAGE_ERROR)
        self.offline.add(lost)

    def _not_offline(self, key: PartitionKey) -> None:
        self.offline.discard(key)
        self.unwritable.discard(key)
        self.damage.rebuilding.discard(key)

    def doubted(self, partition: Partition, offset: int, max_bytes: int) -> None:
        """Check for damage after a follower could not use the records at `offset`, or the read failed."""
        self.damage.rechecks.raised(partition, offset, max_bytes)

    def found_damaged(self, partition: Partition, error: KafkaError) -> None:
        """Handle a damaged file of this replica; `error` says which file and where."""
        self.damage.rechecks.confirmed(partition, error)

    def look_again(self, key: PartitionKey) -> None:
        """Give this replica its role in the present image again, after a change outside the image, such as a rebuilt
        log.
        """
        self._look_at({key})

    def _forget(self, partition: Partition, error: ErrorCode) -> None:
        if self._by_name.get((partition.topic, partition.index)) is partition:
            del self._by_name[partition.topic, partition.index]
        self._fetchers.forget(partition)
        self._copies.forget(partition)
        self._retire(partition, error)

    def _broker_changed(self, broker_id: int, looked_at: set[PartitionKey]) -> None:
        broker = self.image.brokers.get(broker_id)
        if broker is None:
            self.sessions.drop(broker_id)
            self._fetchers.disconnect(broker_id)
        elif broker_id != self.broker_id and not broker.fenced:
            self._fetchers.connect(broker_id)
        self._isrs.broker_changed(broker_id, looked_at)

    def _reconfigure(self, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            if self._by_key.get((partition.topic_id, partition.index)) is not partition:
                continue  # The replica was removed by the same change.
            settings = self._settings_of(partition.topic)
            partition.log.config = settings.log
            partition.note_moved()
            partition.reconfigure(settings.replication)

    # Timers

    def start(self) -> None:
        """Start the periodic work on replicas: checks of ISRs, retries of missing logs, rebuilding of damaged replicas,
        and checkpoints of high watermarks.
        """
        self._every(self.config.lag_time_max_ms / 2000, self.check_isr)
        self._every(_MISSING_LOGS_INTERVAL_S, self.making.look_for_missing_logs)
        self._every(_REBUILDING_INTERVAL_S, self.damage.rebuilding.look)
        self._every(self.config.watermark_checkpoint_interval_ms / 1000, self.checkpoint_high_watermarks)

    def _every(self, interval_s: float, work: Callable[[], None]) -> None:
        place = len(self._timers)

        def run() -> None:
            self._timers[place] = self._loop.call_later(interval_s, run)
            work()

        self._timers.append(self._loop.call_later(interval_s, run))

    def check_isr(self) -> None:
        """Check the ISRs of led partitions that the passage of time may change."""
        self._isrs.check()

    def checkpoint_high_watermarks(self) -> None:
        """Write the high watermarks of all replicas to disk, so that a restarted broker begins with them."""
        moved = filter(self.holds, self._watermarks_moved.take())
        self._logs.checkpoint_high_watermarks(
            {(partition.topic, partition.index): partition.high_watermark for partition in moved}
        )

    async def close(self) -> None:
        """End the roles of all replicas and the fetches from leaders. Logs remain open; their owner closes them."""
        self._closed = True
        for timer in self._timers:
            timer.cancel()
        self.offline.close()
        self.unwritable.close()
        await self.damage.close()
        self.making.removals.close()
        await self._isrs.close()
        self._fetchers.close()
        self.sessions.close()
        for partition in self._by_key.values():
            self._copies.forget(partition)
            partition.retire(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._flusher.close()
        self.checkpoint_high_watermarks()

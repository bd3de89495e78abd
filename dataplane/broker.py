"""A broker, put together from its parts."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import random
import signal
import uuid
from collections.abc import Callable, Iterator

from ..protocol.cluster_image import ClusterImage, ImageDelta
from ..protocol.errors import KafkaError
from ..protocol.exposition import Family
from ..protocol.features import finalized
from ..protocol.messages.fetch import FetchRequest
from ..protocol.messages.metadata_records import BrokerListener
from ..protocol.node_proof import NodeCredentials
from .broker_settings import BrokerSettings
from .cluster.internal_topics import OFFSETS_TOPIC
from .cluster.listed_brokers import ListedBrokers
from .cluster.topic_creation import TopicCreator
from .configuration.config import BrokerConfig
from .configuration.topic_settings import TopicSettingsView
from .groups.coordinator import GroupCoordinator
from .groups.dependencies import GROUP_RESOURCE, GroupDependencies
from .groups.replicated_log import ReplicatedOffsetsLog
from .handlers.alter_configs import AlterConfigsHandlers
from .handlers.api_versions import ApiVersionsHandlers
from .handlers.authenticate_node import AuthenticateNodeHandlers
from .handlers.client_quotas import ClientQuotaHandlers
from .handlers.consumer_groups import ConsumerGroupHandlers
from .handlers.delete_records import DeleteRecordsHandlers
from .handlers.describe_cluster import DescribeClusterHandlers
from .handlers.describe_configs import DescribeConfigsHandlers
from .handlers.describe_producers import DescribeProducersHandlers
from .handlers.describe_quorum import DescribeQuorumHandlers
from .handlers.describe_topic_partitions import DescribeTopicPartitionsHandlers
from .handlers.elect_leaders import ElectLeadersHandlers
from .handlers.fetch import FetchHandlers, FetchSettings
from .handlers.find_coordinator import FindCoordinatorHandlers
from .handlers.group_offsets import GroupOffsetHandlers
from .handlers.groups import GroupHandlers
from .handlers.list_offsets import ListOffsetsHandlers
from .handlers.log_dirs import LogDirHandlers
from .handlers.metadata import MetadataHandlers
from .handlers.offset_for_leader_epoch import OffsetForLeaderEpochHandlers
from .handlers.partition_reassignments import PartitionReassignmentHandlers
from .handlers.produce import ProduceHandlers
from .handlers.settings.config_view import ConfigView
from .handlers.topics import TopicHandlers
from .handlers.unregister_broker import UnregisterBrokerHandlers
from .handlers.update_features import UpdateFeaturesHandlers
from .metrics import BrokerMetrics
from .quorum.config import Position, QuorumSessionConfig
from .quorum.image_gate import ImageGate
from .quorum.session import QuorumSession, SessionLost
from .replication.follower.fetcher import LinkSettings
from .replication.follower.fetching import FetchLimits
from .replication.leader.isr_submission import submit_to
from .replication.replica.partition import Partition
from .replication.replicas.folder_moves import FolderMoves
from .replication.replicas.offline import report_to
from .replication.replicas.rebuilding import renew_with
from .replication.replicas.replicas import Replicas, ReplicasConfig
from .runtime.allocator import keep_freed_memory
from .runtime.clocks import monotonic_ms, wall_ms
from .server import HandlerTable, Server
from .server.request_times import FOLLOWER_FETCH
from .storage import metadata_position
from .storage.folder_settings import cordoned_folders, move_bytes_per_second
from .storage.log_cleaner import CleanerSettings, LogCleaner
from .storage.log_store import LogStore
from .storage.log_upkeep import LogUpkeep
from .storage.log_verifier import LogVerifier
from .transaction_apis import transaction_handlers
from .transactions.participant import TransactionParticipant

log = logging.getLogger(__name__)

_CHECKPOINT_INTERVAL_S = 60.0
_CHECKPOINTS_PER_EXPIRY = 10


class StorageUnusable(OSError):
    """The data folders cannot be used: locked, another node's, unreadable."""


class Broker:
    """One broker: its logs, its session with the quorum, its replicas, its groups, its server.

    `start` raises `StorageUnusable`, `server.PortInUse` and `quorum.session.SessionLost`. When the disk under a
    data folder fails, the replicas in it go offline and others lead what they led; when that was the last folder,
    the broker leaves the cluster in good order, and `stop` raises `StorageUnusable`. A full disk is no failure.
    """

    def __init__(self, config: BrokerConfig) -> None:
        self.config = config
        self._incarnation = uuid.uuid4().bytes
        self._credentials = NodeCredentials.of(
            config.quorum.secret, config.cluster_id, config.node_id, self._incarnation
        )
        self._gate = ImageGate(config.node_id, self._incarnation)
        self._listed = ListedBrokers(config.fenced_linger_ms, monotonic_ms)
        self._failure: StorageUnusable | None = None
        self._topic_names: dict[bytes, str] = {}
        self._metrics: BrokerMetrics | None = None
        self._caught_up = False
        self._written_position: Position | None = None

    async def start(self) -> None:
        """Bind, load, register, serve; returns once this broker may lead. The quorum may come up later."""
        config = self.config
        keep_freed_memory()
        self.table = HandlerTable()
        self.server = Server(self.table, config.server)
        try:
            for listener in config.listeners:
                self.server.listen(listener.name, listener.host, listener.port)
            self.logs = await asyncio.to_thread(self._open_logs)
            reached = await asyncio.to_thread(self._reached)
        except BaseException:
            self.server.close()
            raise
        loop = asyncio.get_running_loop()
        self.logs.on_failure = lambda error: _soon(loop, self._storage_failed, error)
        self.own_settings = BrokerSettings(config.node_id, config.properties, lambda: self.session.image)
        self.settings = TopicSettingsView(config, self.own_settings)
        self.session = QuorumSession(
            self._session_config(reached),
            on_delta=self._image_changed,
            progress=lambda: self.replicas.progress(),
            on_settled=lambda name, number: self.transactions.completion_waits.settled(name, number),
            on_lost=self._lost,
        )
        self.logs.cordoned = cordoned_folders(self.own_settings, config.log_dirs)
        self.replicas = self._replicas()
        self.moves = FolderMoves(
            self.replicas, self.logs, lambda: move_bytes_per_second(self.own_settings), wall_ms
        )
        self.groups = GroupCoordinator(
            config.groups,
            _steady_wall_ms(),
            self._offsets_partitions,
            lambda: self.session.image.topics,
            GroupDependencies(
                group_settings=lambda group_id: self.session.image.configs.get(
                    (GROUP_RESOURCE, group_id), {}
                ),
                wall_ms=wall_ms,
            ),
        )
        self.transactions = TransactionParticipant(
            config.node_id,
            self.replicas,
            lambda: self.session.image,
            self.session,
            self.groups.transaction_ended,
        )
        self.replicas.listen(self)
        self.server.metadata_offset = lambda: self.session.image.offset
        self._register_handlers()
        self._upkeep = asyncio.create_task(self._checkpoint_logs(), name="log checkpoints")
        self._log_upkeep = LogUpkeep(
            lambda: self.replicas, self._keep_log_starts, config.retention_check_interval_ms, wall_ms
        )
        self._log_upkeep.start()
        self._verifier = LogVerifier(
            lambda: self.replicas,
            lambda partition, error: self.replicas.damage.condemn(partition, error),
            config.verify_bytes_per_second,
            config.retention_check_interval_ms,
        )
        self._verifier.start()
        self._cleaner = LogCleaner(CleanerSettings.of(self.own_settings), lambda: self.replicas, wall_ms)
        self._cleaner.start()
        self.replicas.start()
        await self.session.start()
        await self.session.registered()
        # Not after: unfenced, this broker would be elected for replicas that it has lost.
        await self.replicas.offline.reported()
        self.session.ask_to_unfence()
        await self.session.unfenced()
        # Not before: asked with an empty image, this broker would deny all topics and all brokers, itself
        # included, and clients drop the addresses that an answer leaves out.
        self.server.start()
        self.moves.resume()
        self._metrics = self._make_metrics()
        log.info("broker %d serves", config.node_id)

    async def stop(self) -> None:
        """Move leaderships away, stop serving, and leave the logs closed cleanly."""
        if not hasattr(self, "session"):
            return
        clean_epoch = self.session.broker_epoch
        if clean_epoch < 0:
            # Never registered: the logs are as the last registration left them.
            clean_epoch = self.logs.previous_broker_epoch
        elif not self.session.fenced:
            timeout_s = self.config.quorum.controlled_shutdown_timeout_ms / 1000
            if not await self.session.shut_down_controlled(timeout_s):
                log.warning("leaderships did not all move within %.0f s: clients will fail over", timeout_s)
        self._upkeep.cancel()
        await self._log_upkeep.close()
        await self._verifier.close()
        await self._cleaner.close()
        self.server.close()
        self._fetches.close()
        self._produces.close()
        self.transactions.close()
        self.groups.close()
        await self.moves.close()
        await self.replicas.close()
        await self.session.stop()
        await self._write_position()
        await asyncio.to_thread(self.logs.close, clean=self._failure is None, broker_epoch=clean_epoch)
        if self._failure is not None:
            raise self._failure

    def families(self) -> Iterator[Family]:
        """Its metrics; none before it serves."""
        return iter(()) if self._metrics is None else self._metrics.families()

    def unready(self) -> str:
        """Why it does not take part now; empty when it does.

        It takes part once its replicas have been in sync after the start, so that a rolling update that waits
        for it takes no second replica away. Later lag does not count: clients still need what it leads.
        """
        if hasattr(self, "session") and self.session.history_lost:
            return self.session.history_lost
        if self._metrics is None:
            return f"broker {self.config.node_id} is starting"
        if self._failure is not None:
            return str(self._failure.strerror)
        if self.session.fenced:
            return f"broker {self.config.node_id} is fenced"
        if not self._caught_up and (behind := self._replicas_behind()):
            return f"broker {self.config.node_id} is catching up: {behind} of its replicas are not in sync"
        self._caught_up = True
        return ""

    def _replicas_behind(self) -> int:
        """Replicas here that are not in the ISR, though their log can be used."""
        own = self.config.node_id
        return sum(
            own in state.replicas and own not in state.isr and own not in state.offline_replicas
            for topic in self.session.image.topics.values()
            for state in topic.partitions.values()
        )

    # ------------------------------------------------------------ parts

    def _open_logs(self) -> LogStore:
        config = self.config
        try:
            return LogStore.open(
                config.log_dirs,
                config.cluster_id,
                config.node_id,
                wall_ms,
                config.recovery_threads_per_data_dir,
            )
        except KafkaError as error:
            raise StorageUnusable(0, error.message) from error

    def _reached(self) -> Position | None:
        """How far an earlier process has followed the metadata, unless an operator says that it does not count."""
        folders = [directory.path for directory in self.logs.usable]
        if self.config.restored:
            metadata_position.forget(folders)
        return metadata_position.read(folders)

    async def _write_position(self) -> None:
        position = self.session.position
        if position.offset > 0 and position != self._written_position:
            self._written_position = position
            folders = [directory.path for directory in self.logs.usable]
            await asyncio.to_thread(metadata_position.write, folders, position)

    def _session_config(self, reached: Position | None) -> QuorumSessionConfig:
        config, quorum = self.config, self.config.quorum
        bound = {listener.name: listener.port for listener in self.server.listeners}
        return QuorumSessionConfig(
            broker_id=config.node_id,
            cluster_id=config.cluster_id,
            secret=quorum.secret,
            voters=quorum.voters,
            incarnation=self._incarnation,
            listeners=tuple(
                BrokerListener(
                    name=told.name,
                    host=told.advertised_host,
                    port=told.advertised_port or bound[told.name],
                )
                for told in config.listeners
            ),
            previous_broker_epoch=self.logs.previous_broker_epoch,
            rack=config.rack,
            log_dirs=self.logs.directory_ids,
            reached=reached,
            heartbeat_interval_ms=quorum.heartbeat_interval_ms,
            session_timeout_ms=quorum.session_timeout_ms,
        )

    def _replicas(self) -> Replicas:
        config, replication, session = self.config, self.config.replication, self.session
        return Replicas(
            ReplicasConfig(
                credentials=self._credentials,
                inter_broker_listener=config.inter_broker_listener,
                lag_time_max_ms=replication.lag_time_max_ms,
                watermark_checkpoint_interval_ms=replication.watermark_checkpoint_interval_ms,
                watermark_delay_s=config.watermark_delay_s,
                limits=FetchLimits(replication.fetch_max_bytes, replication.fetch_response_max_bytes),
                link=LinkSettings(replication.fetch_wait_ms_max, replication.socket_timeout_ms / 1000),
            ),
            self.logs,
            session.image,
            lambda topic: self.settings.of(session.image, topic),
            submit_to(session, config.node_id),
            lambda: session.broker_epoch,
            report_to(session, config.node_id),
            renew_with(session, config.node_id),
        )

    def _register_handlers(self) -> None:
        config, session, replicas = self.config, self.session, self.replicas
        chance = random.Random(os.urandom(16))
        purgatory, quotas = self.server.purgatory, self.server.quotas
        creator = TopicCreator(session, config.topics, chance)
        self._fetches = FetchHandlers(
            replicas,
            purgatory,
            FetchSettings(config.fetch_answer_max_bytes, config.fetch_session_slots, config.replica_selector),
            quotas,
        )
        self._produces = ProduceHandlers(replicas, purgatory, self.transactions.gate, quotas)
        view = ConfigView(session, self.own_settings)
        for handlers in (
            AuthenticateNodeHandlers(self._credentials),
            ApiVersionsHandlers(self.table, session, config.node_id),
            MetadataHandlers(session, config.node_id, creator, self._listed),
            DescribeClusterHandlers(session, config.node_id, self._listed),
            DescribeTopicPartitionsHandlers(session),
            DescribeQuorumHandlers(session),
            PartitionReassignmentHandlers(session),
            ElectLeadersHandlers(session),
            UnregisterBrokerHandlers(session),
            FindCoordinatorHandlers(session, creator),
            self._produces,
            self._fetches,
            ListOffsetsHandlers(replicas),
            OffsetForLeaderEpochHandlers(replicas),
            DeleteRecordsHandlers(replicas, self._keep_log_starts),
            LogDirHandlers(self.logs, self.moves),
            DescribeProducersHandlers(replicas),
            *transaction_handlers(
                config,
                session,
                replicas,
                self.groups,
                self.transactions,
                creator,
                lambda: self.own_settings.number("transaction.max.timeout.ms"),
            ),
            GroupHandlers(self.groups),
            GroupOffsetHandlers(
                self.groups, lambda: session.image, wall_ms, config.offset_metadata_max_bytes
            ),
            ConsumerGroupHandlers(
                self.groups,
                config.groups.consumer.assignors,
                lambda: finalized(session.image.features)["group.version"],
            ),
            TopicHandlers(
                session,
                config.topics,
                view,
                chance,
                delete_topic_enable=config.delete_topic_enable,
                quotas=quotas,
            ),
            DescribeConfigsHandlers(session, config.node_id, view),
            AlterConfigsHandlers(session, self.own_settings, config.log_dirs),
            ClientQuotaHandlers(session),
            UpdateFeaturesHandlers(session),
        ):
            self.table.add(handlers)

    def _make_metrics(self) -> BrokerMetrics:
        names = {
            handler.api_key: handler.request_class.__name__.removesuffix("Request") for handler in self.table
        } | {FetchRequest.api_key: "FetchConsumer", FOLLOWER_FETCH: "FetchFollower"}
        return BrokerMetrics(
            lambda: self.session.image,
            self.replicas,
            self.groups,
            self.server.times,
            names.__getitem__,
            lambda: len(self.server.connections),
            lambda: self.session.fenced,
            lambda: bool(self.session.history_lost),
            lambda: {str(each.path): self._cleaner.uncleanable_in(each.path) for each in self.logs.usable},
            lambda: {str(each.path): self._cleaner.unreadable_in(each.path) for each in self.logs.usable},
        )

    # ------------------------------------------------------------ what happens

    def _image_changed(self, image: ClusterImage, delta: ImageDelta) -> None:
        self.settings.forget(delta)
        self._listed.image_changed(image, delta.brokers)
        if delta.configs:
            self.server.max_connections = self.own_settings.number("max.connections")
            self.server.max_connections_per_ip = self.own_settings.number("max.connections.per.ip")
            self.logs.cordoned = cordoned_folders(self.own_settings, self.config.log_dirs)
            self._cleaner.reconfigure(CleanerSettings.of(self.own_settings))
        if delta.client_quotas:
            self.server.quotas.changed(image.client_quotas)
        waited = not self._gate.open
        passed = self._gate.passed(image, delta)
        if passed is None:
            return
        try:
            if waited:
                self._set_strays_aside(image)
                self._miss_logs(image)
            self.replicas.apply(image, passed)
            self.transactions.image_changed(passed)
            self.groups.image_changed(image, passed)
            self.groups.topics_removed(self._removed(image, passed))
            self.server.metadata_moved()
        except Exception:
            # The image is past this change: going on would mean roles that no longer follow it.
            log.critical("a change of the metadata cannot be followed: this broker ends", exc_info=True)
            os._exit(1)

    def _removed(self, image: ClusterImage, delta: ImageDelta) -> list[str]:
        """Names of the topics that went."""
        names = self._topic_names
        gone = [names.pop(topic_id) for topic_id in delta.removed_topics if topic_id in names]
        names.update((topic_id, image.topics_by_id[topic_id].name) for topic_id in delta.topics)
        return gone

    def _set_strays_aside(self, image: ClusterImage) -> None:
        """Logs of topics that were deleted, or moved to other brokers, while this one was away."""
        node_id = self.config.node_id

        def belongs(topic_id: bytes, index: int) -> bool:
            topic = image.topics_by_id.get(topic_id)
            return (
                topic is not None
                and index in topic.partitions
                and node_id in topic.partitions[index].replicas
            )

        self.logs.set_strays_aside(belongs)

    def _miss_logs(self, image: ClusterImage) -> None:
        """What has no log is in a folder that could not be opened, if there is one: it is not made anew."""
        assigned = {
            (topic.name, index): (topic.id, index)
            for topic in image.topics.values()
            for index, state in topic.partitions.items()
            if self.config.node_id in state.replicas
        }
        self.replicas.take_offline(assigned[name] for name in self.logs.missing(assigned))

    def elected(self, partition: Partition) -> None:
        """This broker leads a partition now. What it lacks of markers is written before anything else."""
        self.transactions.elected(partition)
        if partition.topic == OFFSETS_TOPIC:
            self.groups.elected(partition.index, ReplicatedOffsetsLog(partition))

    def resigned(self, topic: str, index: int) -> None:
        """This broker does not lead a partition any more."""
        if topic == OFFSETS_TOPIC:
            self.groups.resigned(index)

    def _offsets_partitions(self) -> int | None:
        topic = self.session.image.topics.get(OFFSETS_TOPIC)
        return None if topic is None else len(topic.partitions)

    def _lost(self, reason: SessionLost) -> None:
        """Another process has this broker's id: leave, in good order, as if told to."""
        log.error("stopping: %s", reason)
        os.kill(os.getpid(), signal.SIGTERM)

    def _storage_failed(self, error: KafkaError) -> None:
        log.critical("a data folder is offline: %s", error.message)
        topics = self.session.image.topics
        self.replicas.take_offline(
            [(topics[topic].id, index) for topic, index in self.logs.let_failed_go() if topic in topics]
        )
        if not self.logs.usable and self._failure is None:
            self._failure = StorageUnusable(0, f"the disk failed, this broker stops: {error.message}")
            log.critical("%s", self._failure.strerror)
            os.kill(os.getpid(), signal.SIGTERM)

    async def _keep_log_starts(self) -> None:
        await asyncio.wrap_future(self.logs.checkpoint_log_starts())

    async def _checkpoint_logs(self) -> None:
        for round_ in itertools.count(1):
            await asyncio.sleep(_CHECKPOINT_INTERVAL_S)
            await asyncio.wrap_future(self.logs.checkpoint())
            await self._write_position()
            if round_ % _CHECKPOINTS_PER_EXPIRY == 0:
                self.logs.expire_producers()
                self.groups.expire()


def _steady_wall_ms() -> Callable[[], int]:
    """A clock that starts as the wall clock stands and does not jump with it: members of groups expire by it."""
    ahead_ms = wall_ms() - monotonic_ms()
    return lambda: ahead_ms + monotonic_ms()


def _soon(loop: asyncio.AbstractEventLoop, work: Callable[[KafkaError], None], error: KafkaError) -> None:
    """From any thread; a loop that has ended needs no telling."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(work, error)

"""The parts of one broker, all created here. Nothing runs and nothing is sent before `Broker.start`."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Iterator
from functools import partial

from ...protocol.cluster.cluster_image import ClusterImage
from ...protocol.features import finalized
from ...protocol.messages.config_commands import ResourceType
from ...protocol.messages.metadata_records import BrokerListener
from ...protocol.session.node_proof import NodeCredentials
from ..broker_settings import BrokerSettings
from ..cluster.internal_topics import OFFSETS_TOPIC
from ..cluster.listed_brokers import ListedBrokers
from ..cluster.lost_brokers import LostBrokers
from ..cluster.topic_creation import TopicCreator
from ..configuration.config import BrokerConfig
from ..configuration.topic_settings import TopicSettingsView
from ..groups.consumer.subscriptions import TopicCatalog
from ..groups.coordinator import GroupCoordinator
from ..groups.dependencies import GroupDependencies
from ..groups.metrics import GroupMetrics
from ..groups.removed_topics import RemovedTopics
from ..handlers.acls import AclHandlers
from ..handlers.alter_configs import AlterConfigsHandlers
from ..handlers.api_versions import ApiVersionsHandlers
from ..handlers.authenticate_node import AuthenticateNodeHandlers
from ..handlers.client_quotas import ClientQuotaHandlers
from ..handlers.consumer_groups import ConsumerGroupHandlers
from ..handlers.delegation_tokens import DelegationTokenHandlers
from ..handlers.delete_records import DeleteRecordsHandlers
from ..handlers.describe_cluster import DescribeClusterHandlers
from ..handlers.describe_configs import DescribeConfigsHandlers
from ..handlers.describe_producers import DescribeProducersHandlers
from ..handlers.describe_quorum import DescribeQuorumHandlers
from ..handlers.describe_topic_partitions import DescribeTopicPartitionsHandlers
from ..handlers.elect_leaders import ElectLeadersHandlers
from ..handlers.failback import FailbackHandlers
from ..handlers.fetch import FetchHandlers, FetchSettings
from ..handlers.find_coordinator import FindCoordinatorHandlers
from ..handlers.group_offsets import GroupOffsetHandlers
from ..handlers.groups import GroupHandlers
from ..handlers.list_offsets import ListOffsetsHandlers
from ..handlers.log_dirs import LogDirHandlers
from ..handlers.metadata import MetadataHandlers
from ..handlers.mirrors import MirrorHandlers
from ..handlers.offset_for_leader_epoch import OffsetForLeaderEpochHandlers
from ..handlers.partition_reassignments import PartitionReassignmentHandlers
from ..handlers.produce import ProduceHandlers
from ..handlers.sasl import SaslHandlers
from ..handlers.scram_credentials import ScramCredentialHandlers
from ..handlers.settings.config_view import ConfigView
from ..handlers.topics import TopicHandlers
from ..handlers.unregister_broker import UnregisterBrokerHandlers
from ..handlers.update_features import UpdateFeaturesHandlers
from ..metrics import BrokerMetrics
from ..mirroring.metrics import MirrorMetrics
from ..mirroring.mirrors import Mirrors
from ..mirroring.offset_commits import OwnGroups
from ..mirroring.offset_takeover import OffsetTakeover
from ..mirroring.options import MirrorOptions
from ..mirroring.source import Sources
from ..mirroring.source_check import SourceCheck
from ..quorum.config import QuorumSessionConfig
from ..quorum.image_gate import ImageGate
from ..quorum.metrics import ClusterMetrics
from ..quorum.registration import SessionLost
from ..quorum.session import QuorumSession
from ..replication.follower.fetcher import LinkSettings
from ..replication.follower.fetching import FetchLimits
from ..replication.leader.isr_submission import submit_to
from ..replication.replicas.folder_moves import FolderMoves
from ..replication.replicas.metrics import ReplicaMetrics
from ..replication.replicas.offline import report_to
from ..replication.replicas.rebuilding import rebuild_with
from ..replication.replicas.replicas import Replicas, ReplicasConfig
from ..replication.replicas.unwritable import report_writability_to
from ..runtime.clocks import monotonic_ms, wall_ms
from ..runtime.periodic import PeriodicRunner
from ..security.authorization.metrics import AuthorizationMetrics
from ..security.delegation_tokens import DelegationTokens
from ..security.listener_tls import ReloadedListener, reached_by_clients
from ..security.node_tls import NodeCertificates
from ..security.resealing import Resealer
from ..security.setting_secrets import SettingSecrets
from ..security.tls_reloading import TlsReloads
from ..server.metrics import ServerMetrics
from ..server.tls_metrics import TlsMetrics
from ..storage.folder_settings import move_bytes_per_second
from ..storage.metrics import CleanerMetrics
from ..transactions.participant import TransactionParticipant
from .catch_up import CatchUp
from .foundation import Foundation
from .group_expiry import GroupExpiry
from .image_changes import FollowersBehindGate, FollowingPart, ImageChanges
from .leaderships import Leaderships
from .lifecycle import ClosedPart, StartedPart
from .logins import EndedCredentials, EndedTokens, Logins
from .own_logs import LogsAtStart
from .resealing import Resealing
from .room_watch import RoomWatch
from .running_settings import CleanerSettingsInForce, ConnectionLimitsInForce, CordonsInForce
from .storage_failures import StorageFailures
from .transaction_apis import transaction_handlers
from .upkeep import Upkeep


class BrokerParts:
    """All parts, in an order in which each part follows those that it needs.

    `incarnation`: 16 random bytes that distinguish this process from others with the same broker id. `on_lost` is
    called when such a process has taken over.
    """

    def __init__(
        self,
        config: BrokerConfig,
        incarnation: bytes,
        foundation: Foundation,
        on_lost: Callable[[SessionLost], None],
        sources: Sources | None = None,
    ) -> None:
        credentials = NodeCredentials.of(
            config.quorum.security.cluster, config.cluster_id, config.node_id, incarnation
        )
        self._config = config
        self._table = foundation.table
        self.server = foundation.server
        self.logs = foundation.logs
        self.session = QuorumSession(
            _session_config(config, foundation, incarnation),
            # The session calls these once it runs, after all parts were created.
            on_delta=lambda image, delta: self.image_changes.image_changed(image, delta),
            log_ends=lambda: self.replicas.log_ends,
            on_settled=lambda name, number: self.transactions.completion_waits.settled(name, number),
            on_lost=on_lost,
        )
        self.tokens = (
            None
            if config.token_keys is None
            else DelegationTokens(config.token_keys, lambda: self.session.image.delegation_tokens, wall_ms)
        )
        self.logins = Logins(
            config.quorum.security.cluster,
            lambda: self.session.image.scram_credentials,
            foundation.acceptors,
            self.tokens,
        )
        self.server.authentication = {
            listener.name: self.logins.settings(listener.sasl)
            for listener in config.listeners
            if listener.sasl is not None
        }
        secrets = SettingSecrets(self.logins.sealer)
        self.settings = BrokerSettings(
            config.node_id, config.properties, self.image, partial(secrets.open, str(config.node_id))
        )
        self._connection_limits = ConnectionLimitsInForce(config, self.settings, self.server.admissions)
        topic_settings = TopicSettingsView(config, self.settings)
        self._cordons = CordonsInForce(config, self.settings, self.logs)
        self.tls = foundation.tls
        self.tls_reloads = TlsReloads(
            {
                listener.name: ReloadedListener(
                    self.tls[listener.name],
                    reached_by_clients(listener.advertised_host),
                    listener.name == config.inter_broker_listener,
                )
                for listener in config.listeners
                if listener.name in self.tls
            }
            | _quorum_listener(config, foundation),
            self.settings.of_listeners,
            config.tls_reload_interval_ms,
        )
        self.lost = LostBrokers(self.image)
        self.replicas = self._make_replicas(credentials, topic_settings)
        self.storage_failures = StorageFailures(self.logs, self.replicas, self.image)
        self.room = RoomWatch(self.logs, self.replicas)
        self.moves = FolderMoves(
            self.replicas, self.logs, partial(move_bytes_per_second, self.settings), wall_ms
        )
        self.groups = self._make_groups()
        self.transactions = TransactionParticipant(
            config.node_id, self.replicas, self.image, self.session, self.groups.transaction_ended
        )
        chance = random.Random(os.urandom(16))
        creator = TopicCreator(self.session, config.topics, chance)
        mirror_options = MirrorOptions(self.logins.sealer)
        commits = OwnGroups(self.groups, self.replicas, self.image, creator, wall_ms)
        self.takeover = OffsetTakeover(
            config.node_id, self.replicas, self.session, self.groups, commits, wall_ms
        )
        self.mirrors = Mirrors(
            config.node_id,
            self.replicas,
            self.session,
            self.transactions.markers,
            commits,
            self.takeover,
            sources,
            mirror_options,
            config.topics.replication_factor,
            chance,
        )
        self.fetches = FetchHandlers(
            self.replicas,
            self.server.purgatory,
            FetchSettings(config.fetch_answer_max_bytes, config.fetch_session_slots, config.replica_selector),
            self.server.quotas,
        )
        self.produces = ProduceHandlers(
            self.replicas, self.server.purgatory, self.transactions.gate, self.server.quotas
        )
        self.upkeep = Upkeep(config, self.settings, self.session, self.logs, self.replicas)
        listed = ListedBrokers(config.fenced_linger_ms, monotonic_ms)
        resealer = Resealer(self.logins.sealer)
        self.resealing = Resealing(self.session, resealer)
        self.image_changes = ImageChanges(tuple(self._image_followers(topic_settings, listed, resealer)))
        self.replicas.listen(Leaderships(self.mirrors, self.transactions, self.groups))
        self.server.metadata_offset = lambda: self.session.image.offset
        trial = SourceCheck(sources, mirror_options)
        self._register_handlers(credentials, secrets, listed, chance, creator, trial)
        self.metrics = self._make_metrics()
        self.catch_up = CatchUp(config.node_id, self.image)
        self.periodic = PeriodicRunner(
            (self.upkeep, GroupExpiry(self.groups, config.offsets_retention_check_interval_ms))
        )
        self.started: tuple[StartedPart, ...] = (
            self.periodic,
            self.upkeep,
            self.tls_reloads,
            self.logins.by_token,
            self.replicas,
        )
        """Parts that begin to work before the session with the quorum, in their order."""
        self.closed = tuple(self._closed())
        """Parts that are closed before the session with the quorum, in their order."""

    def image(self) -> ClusterImage:
        """Return the cluster image as this broker knows it now."""
        return self.session.image

    def _image_followers(
        self, settings: TopicSettingsView, listed: ListedBrokers, resealer: Resealer
    ) -> Iterator[FollowingPart]:
        """Yield the parts that follow the image, in the order in which they get each change: settings first, then
        brokers, rights and logins, then roles, then the state that depends on roles."""
        authorization, authentications = self.server.authorization, self.server.authentications
        # Before all parts that resolve the settings of topics, so that none of them gets an outdated result.
        yield settings
        # No role depends on these parts, so they follow every image, even one of the time before the registration.
        yield listed
        yield self.lost
        yield self._connection_limits
        yield self._cordons
        yield CleanerSettingsInForce(self.settings, self.upkeep.cleaner)
        yield self.tls_reloads
        if authorization is not None:
            yield authorization
        yield self.server.quotas
        yield resealer
        if self._config.credential_changes_close:
            yield EndedCredentials(authentications)
        if self.tokens is not None:
            # A removed token opens no new session before its sessions end.
            yield self.tokens
            yield EndedTokens(authentications)
        gate = ImageGate(lambda: self.session.is_registered)
        yield FollowersBehindGate(gate, tuple(self._followers_of_roles()))

    def _followers_of_roles(self) -> Iterator[FollowingPart]:
        """Yield the parts that act only on images that know of this process, in their order."""
        # Before replicas are made: a stray log must not become a replica's, and a missing one not an empty one.
        yield LogsAtStart(self._config.node_id, self.logs, self.replicas)
        # All parts below act on the roles of replicas.
        yield self.replicas
        # Before the groups: the offsets of a transaction that ends are applied before removed topics are forgotten.
        yield self.transactions
        yield self.groups
        # After the catalogue of the groups: new topics may have the names of removed ones.
        yield RemovedTopics(self.groups)
        # After the groups, to which the offsets of promoted mirrors are committed.
        yield self.mirrors
        # Last: it serves connections that waited for this image, whose requests must find all parts up to date.
        yield self.server

    def _closed(self) -> Iterator[ClosedPart]:
        """Yield the parts to close, in their order: upkeep first, then requests, then the parts that serve them, and
        last the replicas that all of them use."""
        # Before all else, so that no check begins on a part that is closed.
        yield self.periodic
        yield self.upkeep
        yield self.tls_reloads
        yield self.logins.by_token
        yield self.resealing
        # Before the server, which cancels the requests that wait for news of lost brokers.
        yield self.lost
        # Before the parts that serve requests: none of them gets a new request after it is closed.
        yield self.server
        yield self.logins
        yield self.fetches
        yield self.produces
        # Before the replicas, to which these parts append.
        yield self.transactions
        yield self.groups
        yield self.mirrors
        # Before the replicas, whose logs these parts move or mark as unwritable.
        yield self.moves
        yield self.room
        # After all parts that read or append. The session with the quorum, which replicas report to, ends afterwards.
        yield self.replicas

    def _make_replicas(self, credentials: NodeCredentials, topic_settings: TopicSettingsView) -> Replicas:
        config, replication, session = self._config, self._config.replication, self.session
        between = self.tls.get(config.inter_broker_listener)
        return Replicas(
            ReplicasConfig(
                credentials=credentials,
                inter_broker_listener=config.inter_broker_listener,
                lag_time_max_ms=replication.lag_time_max_ms,
                watermark_checkpoint_interval_ms=replication.watermark_checkpoint_interval_ms,
                watermark_delay_s=config.watermark_delay_s,
                limits=FetchLimits(replication.fetch_max_bytes, replication.fetch_response_max_bytes),
                link=LinkSettings(
                    replication.fetch_wait_ms_max,
                    replication.socket_timeout_ms / 1000,
                    tls=None if between is None else lambda: between.dialling,
                ),
            ),
            self.logs,
            session.image,
            lambda topic: topic_settings.of(session.image, topic),
            submit_to(session, config.node_id),
            lambda: session.broker_epoch,
            report_to(session, config.node_id),
            rebuild_with(session, config.node_id),
            self.lost.lost,
            report_writability_to(session, config.node_id),
        )

    def _make_groups(self) -> GroupCoordinator:
        def partitions() -> int | None:
            topic = self.session.image.topics.get(OFFSETS_TOPIC)
            return None if topic is None else len(topic.partitions)

        authorization = self.server.authorization
        return GroupCoordinator(
            self._config.groups,
            _steady_wall_ms(),
            partitions,
            lambda: self.session.image.topics,
            GroupDependencies(
                TopicCatalog(
                    None if authorization is None else authorization.authorizer,
                    asyncio.get_running_loop().call_soon,
                ),
                group_settings=lambda group: self.session.image.configs.get((ResourceType.GROUP, group), {}),
                wall_ms=wall_ms,
            ),
            lambda group_id, partition: self.takeover.is_withheld(group_id, partition),
        )

    def _register_handlers(
        self,
        credentials: NodeCredentials,
        secrets: SettingSecrets,
        listed: ListedBrokers,
        chance: random.Random,
        creator: TopicCreator,
        trial: SourceCheck,
    ) -> None:
        config, session, replicas, quotas = self._config, self.session, self.replicas, self.server.quotas
        view = ConfigView(session, self.settings, config.references)
        for handlers in (
            AuthenticateNodeHandlers(credentials),
            SaslHandlers(self.server.authentications),
            ScramCredentialHandlers(session, self.logins.sealer),
            ApiVersionsHandlers(self._table, session, config.node_id),
            MetadataHandlers(session, config.node_id, creator, listed, self.lost),
            DescribeClusterHandlers(session, config.node_id, listed),
            DescribeTopicPartitionsHandlers(session),
            DescribeQuorumHandlers(session),
            PartitionReassignmentHandlers(session),
            ElectLeadersHandlers(session),
            UnregisterBrokerHandlers(session),
            FindCoordinatorHandlers(session, creator),
            self.produces,
            self.fetches,
            ListOffsetsHandlers(replicas),
            OffsetForLeaderEpochHandlers(replicas),
            DeleteRecordsHandlers(replicas, self.upkeep.keep_log_starts),
            LogDirHandlers(self.logs, self.moves),
            DescribeProducersHandlers(replicas),
            *transaction_handlers(
                config,
                session,
                replicas,
                self.groups,
                self.transactions,
                creator,
                lambda: self.settings.number("transaction.max.timeout.ms"),
            ),
            GroupHandlers(self.groups),
            GroupOffsetHandlers(self.groups, self.image, wall_ms, config.offset_metadata_max_bytes),
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
            AlterConfigsHandlers(session, self.settings, secrets, config.log_dirs, self.tls_reloads),
            ClientQuotaHandlers(session),
            UpdateFeaturesHandlers(session),
            AclHandlers(session, self.server.authorization),
            DelegationTokenHandlers(session, self.tokens, config.token_lifetimes),
            MirrorHandlers(session, self.mirrors, trial),
            FailbackHandlers(session, self.replicas, trial),
        ):
            self._table.add(handlers)

    def _make_metrics(self) -> BrokerMetrics:
        return BrokerMetrics(
            (
                ClusterMetrics(self.session),
                ReplicaMetrics(self.replicas, self.image),
                CleanerMetrics(self.upkeep.cleaner, self.logs),
                GroupMetrics(self.groups, self.replicas),
                ServerMetrics(self.server, self._table),
                self.logins.by_token,
                TlsMetrics(self.tls_reloads, self.server.handshakes),
                self.resealing,
                MirrorMetrics(self.image, self.mirrors),
                AuthorizationMetrics(self.image, self.server.authorization),
            )
        )


def _quorum_listener(config: BrokerConfig, foundation: Foundation) -> dict[str, ReloadedListener]:
    """Return the broker's certificate for the quorum, as if it were the certificate of another listener."""
    if foundation.quorum_tls is None:
        return {}
    own = ReloadedListener(foundation.quorum_tls, None, is_between_nodes=True)
    return {foundation.quorum_tls.loaded.settings.listener: own}


def _session_config(config: BrokerConfig, foundation: Foundation, incarnation: bytes) -> QuorumSessionConfig:
    bound = {listener.name: listener.port for listener in foundation.server.listeners}
    return QuorumSessionConfig(
        broker_id=config.node_id,
        cluster_id=config.cluster_id,
        security=config.quorum.security,
        tls=None
        if foundation.quorum_tls is None or config.quorum.tls is None
        else NodeCertificates(foundation.quorum_tls, config.quorum.tls.principals),
        voters=config.quorum.voters,
        incarnation=incarnation,
        listeners=tuple(
            BrokerListener(
                name=listener.name,
                host=listener.advertised_host,
                port=listener.advertised_port or bound[listener.name],
                security_protocol=listener.security_protocol,
            )
            for listener in config.listeners
            if listener.is_advertised
        ),
        previous_broker_epoch=foundation.logs.previous_broker_epoch,
        rack=config.rack,
        host=config.host,
        log_dirs=foundation.logs.directory_ids,
        reached=foundation.reached,
        heartbeat_interval_ms=config.quorum.heartbeat_interval_ms,
        session_timeout_ms=config.quorum.session_timeout_ms,
    )


def _steady_wall_ms() -> Callable[[], int]:
    """Return a clock that starts at the wall-clock time and does not jump with it, for expiring group members.

    It does not follow corrections either. So offsets are also kept as long as the wall clock requires.
    """
    ahead_ms = wall_ms() - monotonic_ms()
    return lambda: ahead_ms + monotonic_ms()

"""The parts of one broker, all created here. Nothing runs and nothing is sent before `Broker.start`.

A part may offer any of these, and is then in the list of the offer, at its place in the order:

- `image_changed(image, delta)`: it follows the image of the cluster (`_image_followers`, `_followers_of_roles`);
- `metric_families()`: it has metrics (`_measured`);
- `periodic_work()`: it has work that is repeated (`periodic`);
- `start()`: it works before the session with the quorum (`started`);
- `close()`: it is stopped (`_closed`).
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from ...protocol.cluster.cluster_image import ClusterImage
from ...protocol.session.node_proof import NodeCredentials
from ..broker_settings import BrokerSettings
from ..cluster.internal_topics import OFFSETS_TOPIC, SHARE_STATE_TOPIC
from ..cluster.listed_brokers import ListedBrokers
from ..cluster.lost_brokers import LostBrokers
from ..cluster.topic_creation import TopicCreator
from ..configuration.config import BrokerConfig
from ..configuration.topic_settings import TopicSettingsView
from ..groups.committed_reads import CommittedReads
from ..groups.metrics import GroupMetrics
from ..groups.removed_topics import RemovedTopics
from ..metrics import BrokerMetrics, MeasuredPart
from ..mirroring.metrics import MirrorMetrics
from ..mirroring.source import Sources
from ..quorum.image_gate import ImageGate
from ..quorum.metrics import ClusterMetrics
from ..quorum.registration import SessionLost
from ..quorum.session import QuorumSession
from ..replication.replicas.metrics import ReplicaMetrics
from ..runtime.clocks import monotonic_ms
from ..runtime.periodic import PeriodicRunner
from ..security.authorization.metrics import AuthorizationMetrics
from ..server.metrics import ServerMetrics
from ..server.tls_metrics import TlsMetrics
from ..share.partition_ends import PartitionEnds
from ..storage.metrics import CleanerMetrics
from ..transactions.broker_appends import BrokerAppends
from ..transactions.participant import TransactionParticipant
from ..transactions.transaction_gate import ShareStateGate, TransactionGate
from .catch_up import CatchUp
from .cluster_apis import broker_handlers, settings_handlers
from .foundation import Foundation
from .group_parts import GroupExpiry, group_handlers, make_groups, make_topic_catalog, share_group_handlers
from .image_changes import FollowersBehindGate, FollowingPart, ImageChanges
from .late_share_parts import LateShareParts
from .leaderships import Leaderships
from .lifecycle import ClosedPart, StartedPart
from .logins import EndedCredentials, EndedTokens
from .mirror_parts import MirrorParts
from .own_logs import LogsAtStart
from .record_parts import RecordParts
from .replica_parts import make_replicas
from .running_settings import ConnectionLimitsInForce
from .security_parts import SecurityParts, listener_reloads
from .session_settings import session_config
from .share_state_parts import ShareStateParts
from .storage_parts import StorageParts
from .transaction_apis import transaction_handlers

if TYPE_CHECKING:
    from .share_parts import ShareParts


class BrokerParts:
    """All parts of one broker. They are created in an order in which each part follows the parts that it uses.

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
            session_config(config, foundation, incarnation),
            # The session calls these once it runs, after all parts were created.
            on_delta=lambda image, delta: self.image_changes.image_changed(image, delta),
            log_ends=lambda: self.replicas.log_ends,
            contact_age_s=lambda broker_id: self.replicas.contact_age_s(broker_id),
            on_settled=lambda name, number: self.transactions.completion_waits.settled(name, number),
            on_lost=on_lost,
        )
        self.security = SecurityParts(config, foundation, self.session)
        self.settings = BrokerSettings(
            config.node_id,
            config.properties,
            self.image,
            partial(self.security.secrets.open, str(config.node_id)),
        )
        self._topic_settings = TopicSettingsView(config, self.settings)
        self._connection_limits = ConnectionLimitsInForce(config, self.settings, self.server.admissions)
        self.tls_reloads = listener_reloads(config, foundation, self.settings)
        self._listed = ListedBrokers(config.fenced_linger_ms, monotonic_ms)
        self.lost = LostBrokers(self.image)
        self.replicas = make_replicas(
            config, foundation, credentials, self.session, self._topic_settings, self.lost.lost
        )
        self._topics = make_topic_catalog(self.server.authorization)
        chance = random.Random(os.urandom(16))
        creator = TopicCreator(self.session, config.topics, chance)
        self.share_states = ShareStateParts(
            config,
            foundation,
            credentials,
            self.session,
            creator,
            lambda: ShareStateGate(self.replicas, self.transaction_gate),
        )
        self.groups = make_groups(
            config,
            self.session,
            self._topics,
            self.share_states.persister,
            lambda group_id, partition: self.mirroring.takeover.is_withheld(group_id, partition),
        )
        self.transactions = TransactionParticipant(
            config.node_id,
            self.replicas,
            self.image,
            self.session,
            {
                OFFSETS_TOPIC: self.groups.transaction_ended,
                SHARE_STATE_TOPIC: self.share_states.states.transaction_ended,
            },
        )
        self.transaction_gate = TransactionGate(self.replicas, self.transactions.pending_writes)
        self.broker_appends = BrokerAppends(
            config.node_id, self.replicas, self.transaction_gate, self.share_states.peers, self.image
        )
        self.mirroring = MirrorParts(
            config,
            self.session,
            self.replicas,
            self.groups,
            self.transactions,
            creator,
            sources,
            self.security.logins.sealer,
            chance,
        )
        self.records = RecordParts(config, self.server, self.replicas, self.transactions)
        self.storage = StorageParts(
            config,
            self.settings,
            self.session,
            self.logs,
            self.replicas,
            CommittedReads(config.node_id, self.groups, self.share_states.peers, self.image),
        )
        self.catch_up = CatchUp(config.node_id, self.image)
        self.shares = LateShareParts(partial(self._make_share_parts, creator))
        self.replicas.listen(
            Leaderships(
                self.mirroring.mirrors,
                self.transactions,
                self.groups,
                self.share_states.states,
                self.shares,
            )
        )
        self.server.metadata_offset = lambda: self.session.image.offset
        for handlers in self._handlers(credentials, creator, chance):
            self._table.add(handlers)
        self.image_changes = ImageChanges(tuple(self._image_followers()))
        self.metrics = BrokerMetrics(tuple(self._measured()))
        self.periodic = PeriodicRunner(
            (
                self.storage.upkeep,
                GroupExpiry(self.groups, config.offsets_retention_check_interval_ms),
                self.share_states.states,
            )
        )
        self.started: tuple[StartedPart, ...] = (
            self.periodic,
            self.storage.upkeep,
            self.tls_reloads,
            self.security.logins.by_token,
            self.replicas,
        )
        """Parts that begin to work before the session with the quorum, in their order."""
        self.closed = tuple(self._closed())
        """Parts that are closed before the session with the quorum, in their order."""

    def image(self) -> ClusterImage:
        """Return the cluster image as this broker knows it now."""
        return self.session.image

    def _make_share_parts(self, creator: TopicCreator) -> ShareParts:
        from .share_parts import (
            ShareParts,
        )  # A late import: only a broker with share groups needs these modules.

        return ShareParts(
            self._config,
            self.settings,
            self.session,
            self.server,
            self.replicas,
            self.records.fetches.cold_reads,
            self.share_states.persister,
            self.broker_appends,
            self._topic_settings,
            creator,
        )

    def _handlers(
        self, credentials: NodeCredentials, creator: TopicCreator, chance: random.Random
    ) -> Iterator[object]:
        """Yield the handlers of all APIs."""
        config, session, security = self._config, self.session, self.security
        yield from security.handlers(credentials)
        yield from broker_handlers(config, session, self._table, self._listed, self.lost, creator)
        yield from self.records.handlers()
        yield from self.shares.handlers()
        yield from self.storage.handlers()
        yield from transaction_handlers(
            config,
            session,
            self.replicas,
            self.groups,
            self.transactions,
            creator,
            lambda: self.settings.number("transaction.max.timeout.ms"),
        )
        yield from group_handlers(config, session, self.groups)
        yield from share_group_handlers(
            session,
            self.groups,
            self._topics,
            self.share_states.persister,
            PartitionEnds(config.node_id, self.replicas, self.share_states.peers, self.image),
        )
        yield from self.share_states.handlers()
        yield from settings_handlers(
            config, session, self.settings, security.secrets, self.tls_reloads, self.server.quotas, chance
        )
        yield from self.mirroring.handlers()

    def _image_followers(self) -> Iterator[FollowingPart]:
        """Yield the parts that follow the cluster image, in the order in which they get each change: settings first,
        then brokers, rights and logins, then roles, then the state that depends on roles.
        """
        authorization, authentications = self.server.authorization, self.server.authentications
        # Before all parts that resolve the settings of topics, so that none of them gets an outdated result.
        yield self._topic_settings
        # No role depends on these parts, so they follow every image, even one of the time before the registration.
        yield self._listed
        yield self.lost
        yield self._connection_limits
        yield self.storage.cordons
        yield self.storage.cleaner_settings
        yield self.tls_reloads
        if authorization is not None:
            yield authorization
        yield self.server.quotas
        yield self.security.resealer
        if self._config.credential_changes_close:
            yield EndedCredentials(authentications)
        if self.security.tokens is not None:
            # A removed token opens no new session before its sessions end.
            yield self.security.tokens
            yield EndedTokens(authentications)
        gate = ImageGate(lambda: self.session.is_registered)
        yield FollowersBehindGate(gate, tuple(self._followers_of_roles()))

    def _followers_of_roles(self) -> Iterator[FollowingPart]:
        """Yield the parts that act only on cluster images in which this process is registered, in the order in which
        they get each change.
        """
        # Before replicas are made: a stray log must not become a replica's, and a missing one not an empty one.
        yield LogsAtStart(self._config.node_id, self.logs, self.replicas)
        # All parts below act on the roles of replicas.
        yield self.replicas
        # Before the groups: the offsets of a transaction that ends are applied before removed topics are forgotten.
        yield self.transactions
        yield self.groups
        # After the catalogue of the groups: new topics may have the names of removed ones.
        yield RemovedTopics(self.groups)
        # After the replicas, whose elections make and close the shards of states.
        yield self.share_states.states
        yield self.share_states.peers
        yield self.share_states.persister
        # After the groups, to which the offsets of promoted mirrors are committed.
        yield self.mirroring.mirrors
        # Last: it serves connections that waited for this image, whose requests must find all parts up to date.
        yield self.server

    def _measured(self) -> Iterator[MeasuredPart]:
        """Yield the parts that have metrics, in the order of the metrics page."""
        yield ClusterMetrics(self.session)
        yield ReplicaMetrics(self.replicas, self.image)
        yield CleanerMetrics(self.storage.upkeep.cleaner, self.logs)
        yield self.storage.upkeep.table_holds
        yield GroupMetrics(self.groups, self.replicas)
        yield self.shares
        yield ServerMetrics(self.server, self._table)
        yield self.security.logins.by_token
        yield TlsMetrics(self.tls_reloads, self.server.handshakes)
        yield self.security.resealing
        yield MirrorMetrics(self.image, self.mirroring.mirrors)
        yield AuthorizationMetrics(self.image, self.server.authorization)

    def _closed(self) -> Iterator[ClosedPart]:
        """Yield the parts to close, in their order: upkeep first, then requests, then the parts that serve them, and
        last the replicas that all of them use."""
        # Before all else, so that no check begins on a part that is closed.
        yield self.periodic
        yield self.storage.upkeep
        yield self.tls_reloads
        yield self.security.logins.by_token
        yield self.security.resealing
        # Before the server, which cancels the requests that wait for news of lost brokers.
        yield self.lost
        # Before the parts that serve requests: none of them gets a new request after it is closed.
        yield self.server
        yield self.security.logins
        yield self.records.fetches
        yield self.records.produces
        yield self.shares
        # Before the replicas, to which these parts append.
        yield self.transactions
        yield self.groups
        # Before the connections and the states that it uses.
        yield self.share_states.persister
        yield self.share_states.peers
        yield self.share_states.states
        yield self.mirroring.mirrors
        # Before the replicas, whose logs these parts move or mark as unwritable.
        yield self.storage.moves
        yield self.storage.room
        # After all parts that read or append. The session with the quorum, which replicas report to, ends afterwards.
        yield self.replicas

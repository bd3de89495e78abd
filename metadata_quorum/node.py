"""A quorum node: its parts, and their connections."""

import asyncio
import logging
import time
from collections.abc import Iterator

from ..network.tcp_timeout import UNACKNOWLEDGED_MS_LEAST
from ..protocol.cluster.cluster_image import ClusterImage
from ..protocol.exposition import Family
from ..protocol.messages.broker_commands import FenceBroker
from ..protocol.messages.metadata_records import BrokerRecord, PartitionRecord
from ..protocol.messages.quorum_session import CommandReply, FeedRecords, LeaderChanged
from ..protocol.session.handshake import Role
from ..protocol.settings.config_key import ConfigError
from ..protocol.wire.codec import prepare_decoding, prepare_encoding
from .admin_audit import AdminAudit
from .broker_probes import BrokerProbes
from .broker_sessions import BrokerSession, BrokerSessions, SessionEvents, SnapshotSource
from .command_intake import CommandIntake, CommandReplies
from .config import QuorumNodeConfig
from .feed import MetadataFeed
from .heartbeats import Heartbeats
from .history_check import HistoryCheck
from .leader_answers import LeaderAnswers
from .leader_duties import LeaderDuties
from .leadership import Leadership, own_commands
from .liveness import SessionTracker
from .marker_reports import MarkerReports, ReportedMarkers
from .metrics import quorum_families
from .operator_sessions import OperatorSessions, log_recovery
from .publication import Publication
from .quorum_status import OffsetMarks
from .raft.node import RaftConfig, RaftNode
from .raft.settings import Settings
from .server import QuorumServer
from .silent_brokers import SilentBrokers
from .state.controller import Controller

logger = logging.getLogger(__name__)

MACHINE_FACTORY = "ottla.metadata_quorum.state.controller:Controller"
_TICKS_PER_TIMEOUT = 20
_LEADER_SILENCE_MAX_S = 3.0
"""Limit for the leader's silence, after which a node is not ready; elections take a small part of it."""
_NEEDED_AT_ONCE = (FenceBroker, BrokerRecord, PartitionRecord, FeedRecords, LeaderChanged, CommandReply)
"""Messages of a failover. Generating a codec at its first use would cost a millisecond each."""


class QuorumNode:
    """One node of the metadata quorum: Raft, the controller, the feed, liveness, and the port they share.

    Raises on construction `raft.formation.WrongFolder` for the folder of another node or cluster and
    `raft.disk.CorruptFile`, and ConfigError for first users of a cluster that is formed already; on `start`
    `server.AddressInUse`.
    """

    def __init__(self, config: QuorumNodeConfig) -> None:
        self.config = config
        self._started = False
        # The replicated state. An applied command is noted, and published at the end of the turn.
        self.controller = Controller(
            lambda records, history: self._publication.note(records, history), log_recovery
        )
        self.raft = RaftNode(
            _raft_config(config),
            self.controller,
            on_role=lambda change: self._leadership.role_changed(change),
            on_applied=lambda: self._publication.publish(),
        )
        if config.first_users and self.raft.was_formed:
            raise ConfigError(
                f"{config.directory}: this cluster is already formed, use 'ottla user create': only a cluster that is "
                "formed just now takes first users (--add-scram)"
            )
        # The leader's own actions.
        reported_markers = ReportedMarkers(self.image)
        self._reports = MarkerReports(reported_markers, self.raft.submit)
        self.tracker = SessionTracker(
            config.broker_session_timeout_ms / 1000, suspicion_s=config.broker_silence_fence_ms / 1000
        )
        self.duties = self._make_duties()
        self.probes = BrokerProbes(
            self.duties,
            self.image,
            lambda broker_id: self.tracker.suspicions.heard(broker_id, _now()),
            believes_any_refusal=config.believes_any_refusal,
        )
        turn_s = (
            min(config.broker_session_timeout_ms, config.broker_silence_fence_ms) / 1000 / _TICKS_PER_TIMEOUT
        )
        self._silent = SilentBrokers(
            self.tracker.suspicions,
            self.duties,
            self.probes,
            lambda: self.sessions,
            self.image,
            _now,
        )
        # Messages of brokers, and their recipients.
        self.feed = MetadataFeed(capacity_records=config.feed_records_max)
        marks = OffsetMarks()
        self._heartbeats = heartbeats = Heartbeats(config.node_id, self.duties, _now, _wall_ms)
        self._answers = LeaderAnswers(
            config.node_id,
            config.voters,
            self.raft,
            self.image,
            lambda: self.controller.app_versions,
            self.tracker,
            marks,
            self._reports,
            _now,
        )
        replies = CommandReplies(config.node_id, self.raft)
        self.sessions = self._make_sessions(heartbeats, replies)
        operators = OperatorSessions(self.raft, replies, self._reports.propose_behind)
        self.server = QuorumServer(
            config.listen_host,
            config.listen_port,
            config.security,
            self.raft.identity,
            {Role.RAFT: self.raft.adopt, Role.BROKER: self.sessions.accept, Role.ADMIN: operators.accept},
            heartbeats.datagram,
            tls=config.tls,
        )
        # Reactions to changes.
        self._publication = Publication(
            self.controller, self.raft, self.feed, marks, self.duties, reported_markers, self.sessions, _now
        )
        self._leadership = Leadership(
            config.node_id,
            self.duties,
            self._reports,
            reported_markers,
            self.probes,
            self._silent,
            self.sessions,
            self._publication.publish,
            _now,
            tick_s=turn_s,
            declares_restored=config.restored,
        )

    def image(self) -> ClusterImage:
        """Return this node's image of the cluster's metadata, which includes all commands that this node has
        applied."""
        return self.controller.image

    @property
    def is_leader(self) -> bool:
        """True if this node is the active Raft leader; only a hint until a barrier."""
        return self.raft.is_leader

    @property
    def has_tls(self) -> bool:
        """True if this node's links to other nodes use TLS."""
        return self.config.tls is not None

    def look_at_keys(self) -> None:
        """Reload this node's TLS keys and certificates from their files. Unusable files change nothing."""
        if self.config.tls is not None:
            self.config.tls.look_again()

    def families(self) -> Iterator[Family | None]:
        """Return the node's metrics; none before `start`."""
        if not self._started:
            return iter(())
        return quorum_families(self.raft, self.image(), self.config.tls, self._heartbeats.clocks.skews_ms())

    def unready(self) -> str:
        """Return the reason why the node does not take part now; empty if it does."""
        if not self._started or not self.raft.formed:
            return f"quorum node {self.config.node_id} waits for its peers"
        if self.raft.catching_up:
            return (
                f"quorum node {self.config.node_id} does not vote: it was replaced, or came back with less than it had "
                "acknowledged, and has not caught up with a leader yet"
            )
        if self.raft.leader_silence_s < _LEADER_SILENCE_MAX_S:
            return ""
        return f"quorum node {self.config.node_id} hears of no leader"

    async def start(self) -> None:
        """Recover the Raft log, listen on the port and take part in the quorum. The other nodes may start in any order,
        and later."""
        self._started = True
        for message in _NEEDED_AT_ONCE:
            prepare_decoding(message, 0)
            prepare_encoding(message, 0)
        await self.raft.start()
        self._publication.publish()
        await self.server.start()
        if self.config.tls is not None:
            self.config.tls.start()
        logger.info("quorum node %d listens on port %d", self.config.node_id, self.server.port)

    async def stop(self) -> None:
        """Leave the quorum in order, so that another node leads at once. Call this after a failed `start`, too."""
        if not self._started:
            return
        self._started = False
        self._leadership.stop()
        self.probes.stop()
        self.sessions.close_all("this quorum node is stopping")
        await self.server.stop()
        if self.config.tls is not None:
            await self.config.tls.close()
        self._reports.flush()
        await self.raft.stop()

    def _make_duties(self) -> LeaderDuties:
        config = self.config
        return LeaderDuties(
            self.image,
            self.tracker,
            own_commands(self._reports.propose_behind),
            cluster_id=config.cluster_id,
            imbalance_check_interval_s=config.leader_imbalance_check_interval_seconds
            if config.auto_leader_rebalance_enable
            else float("inf"),
            settings=config.duties,
            defaults=config.cluster_defaults,
            first_users=config.first_users,
            wall_ms=_wall_ms,
        )

    def _make_sessions(self, heartbeats: Heartbeats, replies: CommandReplies) -> BrokerSessions:
        history = HistoryCheck(self.raft, self.feed, lambda: self._publication.publish())
        intake = CommandIntake(
            self.raft,
            replies,
            self.feed,
            self.duties,
            self._reports,
            history,
            AdminAudit(self.config.authorizer, self.image),
            self.image,
            lambda settled: self.sessions.tell_settled(settled, self.image()),
            self.controller.keep_decoded,
            self.controller.drop_decoded,
        )
        return BrokerSessions(
            self.feed,
            SnapshotSource(self.feed, self.image, lambda: self.controller.history),
            SessionEvents(
                heartbeat=heartbeats.heartbeat,
                asked=self._answers.status,
                asked_about_transactions=self._answers.transactions,
                asked_about_app_versions=self._answers.app_versions,
                reported_contacts=self._silent.reported,
                subscribed=history.subscribed,
                submitted=intake.submitted,
                ended=self._session_ended,
            ),
            unacknowledged_ms_max=max(self.config.broker_session_timeout_ms, UNACKNOWLEDGED_MS_LEAST),
        )

    def _session_ended(self, session: BrokerSession) -> None:
        self._answers.forget(session.broker_id)
        if session.link.closed_by_peer:
            self.probes.session_ended(session)


def _raft_config(config: QuorumNodeConfig) -> RaftConfig:
    return RaftConfig(
        node_id=config.node_id,
        peers=config.voters,
        directory=config.directory,
        security=config.security,
        cluster_id=config.cluster_id,
        machine_factory=MACHINE_FACTORY,
        replace_empty=config.replace_empty,
        restored=config.restored,
        tls=config.tls,
        settings=Settings.with_snapshots_every(config.snapshot_bytes),
    )


def _now() -> float:
    return asyncio.get_running_loop().time()


def _wall_ms() -> int:
    return round(time.time() * 1000)

"""The parts of a broker that serve the records of share groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...protocol.features import SHARE, finalized
from ...protocol.messages.config_commands import ResourceType
from ..broker_settings import BrokerSettings
from ..configuration.config import BrokerConfig
from ..fetching.cold_reads import ColdReads
from ..handlers.share_acknowledge import ShareAcknowledgeHandlers
from ..handlers.share_fetch import ShareFetchHandlers
from ..quorum.session import QuorumSession
from ..replication.replicas.replicas import Replicas
from ..runtime.clocks import wall_ms
from ..server import Server
from ..share.leader.dependencies import Persister
from ..share.leader.group_settings import ShareGroupSettings
from ..share.leader.metrics import SharePartitionMetrics
from ..share.leader.share_partitions import SharePartitions
from ..share.leader.share_sessions import ShareSessions


class ShareParts:
    """The share partitions of the partitions that this broker leads, the share sessions, and their handlers."""

    def __init__(
        self,
        config: BrokerConfig,
        settings: BrokerSettings,
        session: QuorumSession,
        server: Server,
        replicas: Replicas,
        cold_reads: ColdReads,
        persister: Persister,
    ) -> None:
        """`cold_reads` sends the answers with records. `persister` reads and writes the durable states."""
        self._session = session

        def own_settings(group_id: str) -> Mapping[str, str]:
            return session.image.configs.get((ResourceType.GROUP, group_id), {})

        self.partitions = SharePartitions(
            replicas, persister, ShareGroupSettings(settings.number, own_settings), wall_ms
        )
        sessions = ShareSessions(self.partitions, lambda: settings.number("group.share.max.share.sessions"))
        self._fetches = ShareFetchHandlers(
            self.partitions,
            sessions,
            lambda: session.image,
            self._share_version,
            server.purgatory,
            cold_reads,
            server.quotas,
            config.fetch.max_bytes,
        )
        self._acknowledges = ShareAcknowledgeHandlers(
            self.partitions, sessions, lambda: session.image, self._share_version
        )
        self.metrics = SharePartitionMetrics(self.partitions, sessions, lambda: self._fetches.waiting_count)

    def handlers(self) -> Iterator[object]:
        """Yield the handlers of requests that take and acknowledge records."""
        yield self._fetches
        yield self._acknowledges

    def _share_version(self) -> int:
        return finalized(self._session.image.features).get(SHARE, 0)

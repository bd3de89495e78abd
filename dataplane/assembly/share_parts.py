"""The parts of a broker that serve the records of share groups. `late_share_parts.py` makes them at first use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...protocol.cluster.transaction_table import Phase
from ...protocol.features import SHARE_WITH_DEAD_LETTERS
from ...protocol.messages.config_commands import ResourceType
from ..broker_settings import BrokerSettings
from ..cluster.topic_creation import TopicCreator
from ..configuration.config import BrokerConfig
from ..configuration.topic_settings import TopicSettingsView
from ..coordinated_log.transactional_producer import TransactionalProducer
from ..fetching.cold_reads import ColdReads
from ..handlers.sharing.acknowledgements import ShareAcknowledgements
from ..handlers.sharing.dead_letters import DeadLetterWrites
from ..handlers.sharing.fetches import ShareFetches
from ..quorum.session import QuorumSession
from ..replication.replicas.replicas import Replicas
from ..runtime.clocks import wall_ms
from ..server import Server
from ..share.feature import share_level
from ..share.leader.group_settings import ShareGroupSettings
from ..share.leader.metrics import SharePartitionMetrics
from ..share.leader.share_partitions import SharePartitions
from ..share.leader.share_sessions import ShareSessions
from ..share.letter_office import LetterRules, TopicsForLetters
from ..share.persister import StatePersister
from ..transactions.broker_appends import BrokerAppends

_ANSWER_TIMEOUT_S: Final = 5.0
"""Time within which the quorum has to answer a question about a transaction."""


class ShareParts:
    """The share partitions of the partitions that this broker leads, the share sessions, and their requests."""

    def __init__(
        self,
        config: BrokerConfig,
        settings: BrokerSettings,
        session: QuorumSession,
        server: Server,
        replicas: Replicas,
        cold_reads: ColdReads,
        persister: StatePersister,
        appends: BrokerAppends,
        topic_settings: TopicSettingsView,
        creator: TopicCreator,
    ) -> None:
        """`cold_reads` sends the answers with records. `persister` reads and writes the durable states. `appends`
        writes dead letters."""
        self._session = session

        def own_settings(group_id: str) -> Mapping[str, str]:
            return session.image.configs.get((ResourceType.GROUP, group_id), {})

        office = TopicsForLetters(
            session,
            lambda: settings.read(LetterRules),
            lambda topic: topic_settings.of(session.image, topic).log.max_message_bytes,
            appends,
            persister,
            wall_ms,
            creator.create_with,
        )
        group_settings = ShareGroupSettings(
            settings.number, own_settings, lambda: self._share_version() >= SHARE_WITH_DEAD_LETTERS
        )
        self.partitions = SharePartitions(
            replicas, persister, group_settings, office, self._has_ended, wall_ms
        )
        sessions = ShareSessions(self.partitions, lambda: settings.number("group.share.max.share.sessions"))
        self.fetches = ShareFetches(
            self.partitions,
            sessions,
            lambda: session.image,
            self._share_version,
            server.purgatory,
            cold_reads,
            server.quotas,
            config.fetch.max_bytes,
        )
        self.acknowledgements = ShareAcknowledgements(
            self.partitions, sessions, lambda: session.image, self._share_version
        )
        self.letter_writes = DeadLetterWrites(appends, lambda: session.image)
        self.metrics = SharePartitionMetrics(self.partitions, sessions, lambda: self.fetches.waiting_count)

    async def _has_ended(self, writer: TransactionalProducer) -> bool:
        """Ask the quorum whether a producer's transaction is over, with all its markers."""
        name = writer.transactional_id
        found = await self._session.transactions.describe([name], _ANSWER_TIMEOUT_S)
        if found is None:
            return False
        told = found.get(name)
        if told is None or Phase(told.phase).is_over:
            return True
        producer = told.producer_id, told.producer_epoch
        return not Phase(told.phase).is_decided and producer != (writer.producer_id, writer.producer_epoch)

    def _share_version(self) -> int:
        return share_level(self._session.image.features)

"""The parts of a broker that copy topics of other clusters (mirrors)."""

from __future__ import annotations

import random
from collections.abc import Iterator

from ..cluster.topic_creation import TopicCreator
from ..configuration.config import BrokerConfig
from ..groups.coordinator import GroupCoordinator
from ..handlers.failback import FailbackHandlers
from ..handlers.mirrors import MirrorHandlers
from ..mirroring.mirrors import Mirrors
from ..mirroring.offset_commits import OwnGroups
from ..mirroring.offset_takeover import OffsetTakeover
from ..mirroring.options import MirrorOptions
from ..mirroring.source import Sources
from ..mirroring.source_check import SourceCheck
from ..quorum.session import QuorumSession
from ..replication.replicas.replicas import Replicas
from ..runtime.clocks import wall_ms
from ..security.sealing import Sealer
from ..transactions.participant import TransactionParticipant


class MirrorParts:
    """The parts for mirrors: the links to their sources, and the takeover of committed offsets after a promotion."""

    def __init__(
        self,
        config: BrokerConfig,
        session: QuorumSession,
        replicas: Replicas,
        groups: GroupCoordinator,
        transactions: TransactionParticipant,
        creator: TopicCreator,
        sources: Sources | None,
        sealer: Sealer,
        chance: random.Random,
    ) -> None:
        """If `sources` is None, this process has no client that could reach a source. `sealer` opens the connection
        options of mirrors."""
        self._session = session
        self._replicas = replicas
        options = MirrorOptions(sealer)
        commits = OwnGroups(groups, replicas, lambda: session.image, creator, wall_ms)
        self.takeover = OffsetTakeover(config.node_id, replicas, session, groups, commits, wall_ms)
        self.mirrors = Mirrors(
            config.node_id,
            replicas,
            session,
            transactions.markers,
            commits,
            self.takeover,
            sources,
            options,
            config.topics.replication_factor,
            chance,
        )
        self._check = SourceCheck(config.node_id, sources, options)

    def handlers(self) -> Iterator[object]:
        """Yield the handlers of requests about mirrors and failbacks."""
        yield MirrorHandlers(self._session, self.mirrors, self._check)
        yield FailbackHandlers(self._session, self._replicas, self._check)

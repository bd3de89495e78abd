"""The durable states of share-partitions that a broker coordinates, and the path to those of other brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from ...protocol.cluster.cluster_image import ClusterImage
from ...protocol.session.node_proof import NodeCredentials
from ..cluster.endpoints import registered_endpoint
from ..cluster.internal_topics import SHARE_STATE_TOPIC
from ..cluster.topic_creation import TopicCreator
from ..configuration.config import BrokerConfig
from ..handlers.share_group_state import ShareGroupStateHandlers
from ..peers.requests import PeerRequests
from ..quorum.session import QuorumSession
from ..runtime.clocks import wall_ms
from ..share.persister import StatePersister
from ..share.state.coordinator import ChangeAdmission, ShareStateCoordinator
from ..share.state.settings import StateLimits
from .foundation import Foundation


class ShareStateParts:
    """The parts of a broker that store the states of share-partitions, and reach those of other brokers."""

    def __init__(
        self,
        config: BrokerConfig,
        foundation: Foundation,
        credentials: NodeCredentials,
        session: QuorumSession,
        creator: TopicCreator,
        gate: Callable[[], ChangeAdmission],
    ) -> None:
        """`gate` returns the check of changes in transactions."""
        self._session = session
        between = foundation.tls.get(config.inter_broker_listener)
        self.states = ShareStateCoordinator(StateLimits.of(config.properties), wall_ms, self._image, gate)
        self.peers = PeerRequests(
            credentials,
            replace(config.replication.link, tls=None if between is None else lambda: between.dialling),
            lambda broker_id: self._address_of(broker_id, config.inter_broker_listener),
        )
        self.persister = StatePersister(
            config.node_id, self.states, self.peers, self._image, lambda: creator.create([SHARE_STATE_TOPIC])
        )

    def handlers(self) -> Iterator[object]:
        """Yield the handlers of other brokers' requests about states."""
        yield ShareGroupStateHandlers(self.states, self._image)

    def _image(self) -> ClusterImage:
        return self._session.image

    def _address_of(self, broker_id: int, listener: str) -> tuple[str, int] | None:
        broker = self._session.image.brokers.get(broker_id)
        found = None if broker is None else registered_endpoint(broker, listener)
        return None if found is None else (found.host, found.port)

"""Brokers over sockets that coordinate share states, with logs in memory and without a quorum."""

from __future__ import annotations

from collections.abc import Callable

from ottla.dataplane.cluster.internal_topics import SHARE_STATE_TOPIC
from ottla.dataplane.coordinated_log.transactional_producer import TransactionalProducer
from ottla.dataplane.handlers.authenticate_node import AuthenticateNodeHandlers
from ottla.dataplane.handlers.share_group_state import ShareGroupStateHandlers
from ottla.dataplane.peers.link import PeerLinkSettings
from ottla.dataplane.peers.requests import PeerRequests
from ottla.dataplane.server.handler import HandlerTable
from ottla.dataplane.server.server import Server
from ottla.dataplane.share.persister import StatePersister
from ottla.dataplane.share.state.coordinator import Released, ShareStateCoordinator
from ottla.dataplane.share.state.settings import StateLimits
from ottla.protocol.cluster.cluster_image import ClusterImage
from ottla.protocol.cluster.image_delta import ImageDelta
from ottla.protocol.errors import KafkaError
from ottla.protocol.features import SHARE
from ottla.protocol.messages.metadata_records import (
    FeatureLevelRecord,
    PartitionRecord,
    Record,
    TopicRecord,
)
from tests.dataplane.share.state.logs import StateMemoryLog
from tests.node_credentials import credentials

TOPIC, STATES = b"t" * 16, b"s" * 16


class StateBroker:
    """One broker: its server, its coordinator of states, and its persister."""

    def __init__(self, broker_id: int, cluster: StateCluster) -> None:
        self.broker_id = broker_id
        self._cluster = cluster
        image: Callable[[], ClusterImage] = lambda: cluster.image  # noqa: E731
        self.states = ShareStateCoordinator(StateLimits.of({}), lambda: 1_000, image, lambda: cluster.gate)
        own = credentials(broker_id)
        self._peers = PeerRequests(own, PeerLinkSettings(), cluster.addresses.get)
        self.persister = StatePersister(
            broker_id, self.states, self._peers, image, cluster.create_topic, timeout_s=20.0
        )
        self._table = HandlerTable(AuthenticateNodeHandlers(own), ShareGroupStateHandlers(self.states, image))
        self.serve()

    def serve(self) -> None:
        """Listen on a new port."""
        self._server = Server(self._table)
        self._cluster.addresses[self.broker_id] = (
            "127.0.0.1",
            self._server.listen("BROKER", "127.0.0.1", 0).port,
        )
        self._server.start()

    def stop_serving(self) -> None:
        """Close the server with all its connections."""
        self._server.close()

    def image_changed(self, image: ClusterImage, delta: ImageDelta) -> None:
        """Follow the image as the parts of a broker do."""
        self.states.image_changed(image, delta)
        self._peers.image_changed(image, delta)
        self.persister.image_changed(image, delta)

    def close(self) -> None:
        """Stop the broker."""
        self.stop_serving()
        self.persister.close()
        self._peers.close()
        self.states.close()


class OpenGate:
    """A gate that admits all changes in transactions, or refuses them with an error."""

    def __init__(self) -> None:
        self.refusals: list[KafkaError] = []
        self.admitted: list[tuple[int, TransactionalProducer]] = []

    def admit(self, partition: int, writer: TransactionalProducer, released: Released) -> None:
        if self.refusals:
            released(self.refusals.pop(0))
            return
        self.admitted.append((partition, writer))
        released(None)


class StateCluster:
    """Brokers 1 and 2 with one image, and a topic of states with one partition once it is created."""

    def __init__(self, *, level: int = 1) -> None:
        self.image = ClusterImage()
        self.addresses: dict[int, tuple[str, int]] = {}
        self.log = StateMemoryLog()
        self.gate = OpenGate()
        self.brokers: dict[int, StateBroker] = {}
        self.created = 0
        self.tell(FeatureLevelRecord(feature=SHARE, level=level), TopicRecord(topic_id=TOPIC, name="t"))
        for index in range(4):
            self.tell(PartitionRecord(topic_id=TOPIC, partition=index, replicas=[1], isr=[1], leader=1))
        for broker_id in (1, 2):
            self.brokers[broker_id] = StateBroker(broker_id, self)

    def tell(self, *records: Record) -> None:
        """Apply records to the image, and notify the brokers."""
        delta = ImageDelta()
        for record in records:
            self.image.apply(record)
            delta.note(record)
        for broker in self.brokers.values():
            broker.image_changed(self.image, delta)

    async def create_topic(self) -> None:
        """Create the topic of states, led by broker 1."""
        self.created += 1
        self.tell(TopicRecord(topic_id=STATES, name=SHARE_STATE_TOPIC))
        self.lead(1)

    def lead(self, broker_id: int) -> None:
        """Let a broker lead the partition of the states."""
        for other in self.brokers.values():
            other.states.resigned(0)
        self.tell(
            PartitionRecord(
                topic_id=STATES, partition=0, replicas=[1, 2], isr=[1, 2], leader=broker_id,
                leader_epoch=self.image.offset,
            )
        )  # fmt: skip
        if broker_id in self.brokers:
            self.brokers[broker_id].states.elected(0, self.log)

    def close(self) -> None:
        """Stop all brokers."""
        for broker in self.brokers.values():
            broker.close()

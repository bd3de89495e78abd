"""The client's cached metadata of the cluster: brokers, topics, leaders. Pure: responses come in, no requests go
out.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ...protocol.direct_codecs.metadata_reader import MetadataReader, ToldPartition, ToldTopic
from ...protocol.errors import ErrorCode
from ...protocol.messages.metadata import MetadataResponse, MetadataResponseBroker, MetadataResponseTopic
from ...protocol.wire.codec import decode

DEFAULT_PORT = 9092
NO_LEADER = -1
ALIKE_MAX: Final = 100_000
"""The maximum number of distinct partition states kept for sharing."""


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """The address of a broker. `id` is -1 for a bootstrap address whose broker is not known yet."""

    id: int
    host: str
    port: int
    rack: str | None = None

    @property
    def place(self) -> tuple[str, int]:
        """Host and port, which identify an address even if its broker id is unknown."""
        return self.host, self.port

    def __str__(self) -> str:
        name = f"broker {self.id} at " if self.id >= 0 else ""
        return f"{name}{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """One partition, as last reported. `leader` is -1 if there is none, `leader_epoch` -1 if it is unknown."""

    index: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()


@dataclass(slots=True)
class TopicInfo:
    """One topic, as last reported; `error` is the reason if its partitions are unknown."""

    name: str
    id: bytes
    is_internal: bool
    error: ErrorCode = ErrorCode.NONE
    partitions: dict[int, PartitionInfo] = field(default_factory=dict)

    @property
    def available(self) -> list[int]:
        """The numbers of the topic's partitions that have a leader, in order."""
        return _led(self.partitions)


@dataclass(slots=True)
class KnownTopic:
    """A topic in the metadata cache: `TopicInfo`, with equal partition states shared as one object."""

    name: str
    id: bytes
    is_internal: bool
    error: ErrorCode = ErrorCode.NONE
    partitions: dict[int, ToldPartition] = field(default_factory=dict)
    encoded: bytes = b""
    """The topic's bytes in the last response; equal bytes contain no news. Empty if they might."""

    @property
    def available(self) -> list[int]:
        """The numbers of the topic's partitions that have a leader, in order."""
        return _led(self.partitions)

    def info(self) -> TopicInfo:
        """Return the topic in its public form, a TopicInfo."""
        partitions = {
            index: PartitionInfo(
                index,
                partition.leader,
                partition.leader_epoch,
                partition.replicas,
                partition.isr,
                partition.offline,
            )
            for index, partition in self.partitions.items()
        }
        return TopicInfo(self.name, self.id, self.is_internal, self.error, partitions)


def _led(partitions: Mapping[int, PartitionInfo | ToldPartition]) -> list[int]:
    return [index for index, partition in partitions.items() if partition.leader != NO_LEADER]


class ClusterMetadata:
    """The metadata cache.

    A partition's leader epoch never decreases, and a topic never has fewer partitions than before: responses of brokers
    that lag are ignored.
    """

    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.brokers: dict[int, BrokerAddress] = {}
        self.topics: dict[str, KnownTopic] = {}
        self._alike: dict[bytes, ToldPartition] = {}

    def update(self, response: MetadataResponse) -> None:
        """Merge one Metadata response: brokers, and the topics it names."""
        self._take_cluster(response.brokers, response.cluster_id, response.controller_id)
        for topic in response.topics:
            self._take_topic(_answer_of(topic))

    def read(self, body: bytes, version: int, position: int = 0) -> Iterator[int]:
        """Merge an encoded Metadata response, topic by topic.

        Yields the number of partitions read after each topic, so that other tasks may get turns. Raises
        MalformedMessage, possibly after the first topics were merged.
        """
        if version not in MetadataResponse.schema.flexible:
            response = decode(MetadataResponse, body, version, position)
            self.update(response)
            yield sum(len(topic.partitions) for topic in response.topics)
            return
        if len(self._alike) > ALIKE_MAX:
            self._alike.clear()
        reader = MetadataReader(body, version, position, self._alike)
        self._take_cluster(reader.brokers, reader.cluster_id, reader.controller_id)
        for topic in reader.topics(self._encoded):
            if topic.partitions is not None:
                self._take_topic(topic)
            yield len(topic.partitions or ())

    def keep(self, topics: Container[str]) -> None:
        """Forget the cached metadata of all topics except these."""
        for topic in [name for name in self.topics if name not in topics]:
            del self.topics[topic]

    def leader(self, topic: str, partition: int) -> int | None:
        """Return the broker id of a partition's leader, None if it is unknown."""
        info = self.partition(topic, partition)
        return None if info is None or info.leader == NO_LEADER else info.leader

    def partition(self, topic: str, partition: int) -> ToldPartition | None:
        """Return the cached state of one partition (leader, replicas), None if it is unknown."""
        known = self.topics.get(topic)
        return None if known is None else known.partitions.get(partition)

    def learn_leader(self, topic: str, partition: int, leader: int, leader_epoch: int) -> None:
        """Note a leader that a broker named in another response (KIP-951), if its epoch is newer."""
        info = self.partition(topic, partition)
        if info is not None and leader_epoch > info.leader_epoch and leader in self.brokers:
            known = self.topics[topic]
            known.partitions[partition] = ToldPartition(
                leader, leader_epoch, info.replicas, info.isr, info.offline
            )
            known.encoded = b""

    def learn_broker(self, broker: BrokerAddress) -> None:
        """Note a broker's address that another broker named.

        Such responses may lack the rack. A known broker at an unchanged address therefore stays as it is, which also
        keeps its connections valid.
        """
        known = self.brokers.get(broker.id)
        if known is None or known.place != broker.place:
            self.brokers[broker.id] = broker

    def _take_cluster(
        self, brokers: Iterable[MetadataResponseBroker], cluster_id: str | None, controller_id: int
    ) -> None:
        self.cluster_id = cluster_id
        self.controller_id = controller_id
        listed = {
            broker.node_id: BrokerAddress(broker.node_id, broker.host, broker.port, broker.rack)
            for broker in brokers
        }
        if listed:
            self.brokers = listed

    def _take_topic(self, topic: ToldTopic) -> None:
        if topic.name is None:
            return
        known = self.topics.get(topic.name)
        partitions = topic.partitions or {}
        if known is not None and known.id == topic.id:
            for index, before in known.partitions.items():
                news = partitions.get(index)
                if news is not None and 0 <= news.leader_epoch < before.leader_epoch:
                    partitions[index] = before
            # Without an id it may be another topic of this name; without partitions there is no topic.
            if partitions and any(topic.id) and not known.partitions.keys() <= partitions.keys():
                partitions = dict(sorted((known.partitions | partitions).items()))
        error = ErrorCode.of(topic.error_code)
        self.topics[topic.name] = KnownTopic(
            topic.name, topic.id, topic.is_internal, error, partitions, topic.encoded
        )

    def _encoded(self, topic: str) -> bytes:
        known = self.topics.get(topic)
        return b"" if known is None else known.encoded


def _answer_of(topic: MetadataResponseTopic) -> ToldTopic:
    in_order = sorted(topic.partitions, key=lambda partition: partition.partition_index)
    partitions = {partition.partition_index: ToldPartition.of(partition) for partition in in_order}
    return ToldTopic(topic.name, topic.topic_id, topic.is_internal, topic.error_code, partitions, b"")


def parse_bootstrap(servers: str | Sequence[str]) -> list[BrokerAddress]:
    """Return the addresses in `host:port,host:port` (or in a sequence of `host:port`); the default port is 9092.

    Raises ValueError that names the invalid part, TypeError for other types.
    """
    if not isinstance(servers, str) and not (
        isinstance(servers, Sequence) and all(isinstance(server, str) for server in servers)
    ):
        raise TypeError(
            f"bootstrap_servers is 'host:port,host:port' or a list of 'host:port', not {servers!r}"
        )
    parts = servers.split(",") if isinstance(servers, str) else servers
    addresses = [_address(part.strip()) for part in parts if part.strip()]
    if not addresses:
        raise ValueError("no bootstrap server given; write host:port, with commas between several")
    return addresses


def _address(text: str) -> BrokerAddress:
    host, colon, port = text.rpartition(":")
    bare_v6 = text.count(":") > 1 and not text.startswith("[")
    if not colon or bare_v6 or text.endswith("]"):
        host, port = text, str(DEFAULT_PORT)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"{text!r} is no bootstrap server; write host:port")
    return BrokerAddress(-1, host, int(port))

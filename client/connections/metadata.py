"""What the client knows of the cluster: brokers, topics, leaders. Pure: answers come in, nothing is asked
here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ...protocol.errors import ErrorCode
from ...protocol.messages.metadata import MetadataResponse, MetadataResponseTopic

DEFAULT_PORT = 9092
NO_LEADER = -1


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """Where a broker listens. `id` is -1 for a bootstrap address whose broker is not known yet."""

    id: int
    host: str
    port: int
    rack: str | None = None

    @property
    def place(self) -> tuple[str, int]:
        """Where it listens, which is one place though the bootstrap servers do not tell whose."""
        return self.host, self.port

    def __str__(self) -> str:
        name = f"broker {self.id} at " if self.id >= 0 else ""
        return f"{name}{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """One partition as last heard: `leader` is -1 while there is none, `leader_epoch` -1 when not told."""

    index: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()


@dataclass(slots=True)
class TopicInfo:
    """One topic as last heard; `error` says why its partitions are not known."""

    name: str
    id: bytes
    is_internal: bool
    error: ErrorCode = ErrorCode.NONE
    partitions: dict[int, PartitionInfo] = field(default_factory=dict)

    @property
    def available(self) -> list[int]:
        """The partitions that have a leader, in order."""
        return [index for index, partition in self.partitions.items() if partition.leader != NO_LEADER]


class ClusterMetadata:
    """The cache. A partition's leader epoch never goes back: an answer from a broker behind the others is no
    news.
    """

    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.brokers: dict[int, BrokerAddress] = {}
        self.topics: dict[str, TopicInfo] = {}

    def update(self, response: MetadataResponse) -> None:
        """Take over what one Metadata response says of brokers and of the topics it names."""
        self.cluster_id = response.cluster_id
        self.controller_id = response.controller_id
        if response.brokers:
            self.brokers = {
                broker.node_id: BrokerAddress(broker.node_id, broker.host, broker.port, broker.rack)
                for broker in response.brokers
            }
        for topic in response.topics:
            if topic.name is not None:
                self.topics[topic.name] = self._merged(topic, self.topics.get(topic.name))

    def leader(self, topic: str, partition: int) -> int | None:
        """The broker id of the leader, None when not known."""
        info = self.partition(topic, partition)
        return None if info is None or info.leader == NO_LEADER else info.leader

    def partition(self, topic: str, partition: int) -> PartitionInfo | None:
        """What is known of one partition."""
        known = self.topics.get(topic)
        return None if known is None else known.partitions.get(partition)

    def learn_leader(self, topic: str, partition: int, leader: int, leader_epoch: int) -> None:
        """Take over a leader that a broker named in passing (KIP-951), when its epoch is newer than what is
        known.
        """
        info = self.partition(topic, partition)
        if info is not None and leader_epoch > info.leader_epoch and leader in self.brokers:
            news = PartitionInfo(partition, leader, leader_epoch, info.replicas, info.isr, info.offline)
            self.topics[topic].partitions[partition] = news

    def learn_broker(self, broker: BrokerAddress) -> None:
        """Take over a broker's address that another broker named in passing."""
        self.brokers[broker.id] = broker

    @staticmethod
    def _merged(topic: MetadataResponseTopic, known: TopicInfo | None) -> TopicInfo:
        name = topic.name or ""
        merged = TopicInfo(name, topic.topic_id, topic.is_internal, ErrorCode.of(topic.error_code))
        same = known is not None and known.id == merged.id
        for partition in sorted(topic.partitions, key=lambda entry: entry.partition_index):
            news = PartitionInfo(
                partition.partition_index,
                partition.leader_id,
                partition.leader_epoch,
                tuple(partition.replica_nodes),
                tuple(partition.isr_nodes),
                tuple(partition.offline_replicas),
            )
            old = known.partitions.get(news.index) if known is not None and same else None
            newer = old is None or news.leader_epoch < 0 or news.leader_epoch >= old.leader_epoch
            merged.partitions[news.index] = news if newer or old is None else old
        return merged


def parse_bootstrap(servers: str | Sequence[str]) -> list[BrokerAddress]:
    """The addresses in `host:port,host:port` (or a sequence of `host:port`); the port is 9092 when
    missing.

    Raises ValueError naming the part that is no address, TypeError for what cannot hold any.
    """
    if not isinstance(servers, str) and not (
        isinstance(servers, Sequence) and all(isinstance(one, str) for one in servers)
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

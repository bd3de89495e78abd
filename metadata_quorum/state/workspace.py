"""The image under change by one command: what is emitted is applied at once and kept for the feed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ...protocol.cluster_image import (
    BrokerState,
    ClusterImage,
    PartitionState,
    broker_record,
    partition_record,
)
from ...protocol.messages.metadata_records import Record
from ...protocol.messages.quorum_commands import ReplicaLogEnd, ResourceType
from .election import Electorate, LogEnd

Scope = frozenset[int] | None
"""Which brokers a record is for; None is all of them."""

ProgressByPartition = Mapping[tuple[bytes, int], Mapping[int, LogEnd]]


def by_partition(progress: Iterable[ReplicaLogEnd]) -> dict[tuple[bytes, int], dict[int, LogEnd]]:
    """What heartbeats told, by partition and replica."""
    table: dict[tuple[bytes, int], dict[int, LogEnd]] = {}
    for told in progress:
        ends = table.setdefault((told.topic_id, told.partition), {})
        ends[told.broker_id] = (told.leader_epoch, told.log_end_offset)
    return table


class Workspace:
    """The image, the records of the command being applied, and what elections need to know."""

    def __init__(self, image: ClusterImage) -> None:
        self.image = image
        self.records: list[tuple[Scope, Record]] = []

    def emit(self, record: Record) -> None:
        """Apply a record and keep it for the feed; controller records go to all brokers."""
        self.image.apply(record)
        self.records.append((None, record))

    def set_broker(self, state: BrokerState) -> None:
        """Emit the new state of a broker, if it is new."""
        if self.image.brokers.get(state.broker_id) != state:
            self.emit(broker_record(state))

    def set_partition(self, topic_id: bytes, index: int, state: PartitionState) -> None:
        """Emit the new state of a partition, if it is new."""
        if self.image.topics_by_id[topic_id].partitions.get(index) != state:
            self.emit(partition_record(topic_id, index, state))

    def partitions(self) -> Iterator[tuple[bytes, int, PartitionState]]:
        """All partitions, in the order of names and indexes. The image may change meanwhile."""
        for name in sorted(self.image.topics):
            topic = self.image.topics[name]
            for index, state in sorted(topic.partitions.items()):
                yield topic.id, index, state

    def usable(self, broker_id: int) -> bool:
        """Whether a broker may lead and join ISRs."""
        broker = self.image.brokers.get(broker_id)
        return broker is not None and broker.usable

    def electorate(self, topic_id: bytes, progress: Mapping[int, LogEnd] | None = None) -> Electorate:
        """What an election in this topic goes by."""
        name = self.image.topics_by_id[topic_id].name
        return Electorate(
            self.usable,
            int(self.topic_config(name, "min.insync.replicas", "1")),
            self.topic_config(name, "unclean.leader.election.enable", "false").lower() == "true",
            progress or {},
        )

    def topic_config(self, topic: str, key: str, default: str) -> str:
        """A topic's dynamic value, else that of all brokers, else `default`."""
        configs = self.image.configs
        own = configs.get((ResourceType.TOPIC, topic), {})
        return own.get(key) or configs.get((ResourceType.BROKER, ""), {}).get(key) or default

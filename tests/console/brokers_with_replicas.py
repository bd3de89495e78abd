"""A fake cluster of five brokers whose replicas move, with sizes, limits of copying and leaders."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ottla.client.admin import ClusterDescription, ConfigEntry, LogDirDescription, OngoingReassignment
from ottla.client.connections.metadata import BrokerAddress, PartitionInfo, TopicInfo
from ottla.client.records import TopicPartition
from ottla.protocol.errors import ErrorCode, KafkaError
from tests.console.fakes import FakeAdmin, topic

RACKS = {1: "a", 2: "b", 3: "c", 4: "a", 5: "b"}
MIB = 1024 * 1024


def partition_on(
    index: int, *replicas: int, leader: int | None = None, isr: Sequence[int] | None = None
) -> PartitionInfo:
    """Return a partition with these replicas, of which the first one leads unless `leader` is given."""
    in_sync = tuple(replicas if isr is None else isr)
    return PartitionInfo(index, replicas[0] if leader is None else leader, 5, tuple(replicas), in_sync)


class ReplicasAdmin(FakeAdmin):
    """Brokers 1 to 5 with 100 MiB free each. A replica has one MiB."""

    def __init__(self, *topics: TopicInfo) -> None:
        default = topic(
            "orders", partition_on(0, 1, 2, 3), partition_on(1, 2, 3, 1), partition_on(2, 3, 1, 2)
        )
        super().__init__(*(topics or (default,)))
        self.brokers = [*RACKS]
        self.free: dict[int, int] = dict.fromkeys(RACKS, 100 * MIB)
        self.size = MIB
        self.ongoing: dict[TopicPartition, OngoingReassignment] = {}
        self.refused: dict[TopicPartition, KafkaError] = {}

    async def describe_cluster(self) -> ClusterDescription:
        brokers = tuple(BrokerAddress(id_, "host", 9091 + id_, RACKS[id_]) for id_ in self.brokers)
        return ClusterDescription("c", 1, brokers)

    async def list_topics(self) -> list[str]:
        return sorted(self.topics)

    async def describe_log_dirs(
        self, brokers: Iterable[int] | None = None, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[int, list[LogDirDescription] | KafkaError]:
        asked = list(partitions or ())
        return {
            broker: [
                LogDirDescription(
                    "/data", None, 200 * MIB, self.free[broker],
                    {name: self.size for name in asked if broker in self.replicas(name)},
                )
            ]
            for broker in self.brokers
        }  # fmt: skip

    def replicas(self, name: TopicPartition) -> tuple[int, ...]:
        return self.topics[name.topic].partitions[name.partition].replicas

    async def list_partition_reassignments(self) -> dict[TopicPartition, OngoingReassignment]:
        if self.failure is not None:
            raise self.failure
        return dict(self.ongoing)

    async def alter_partition_reassignments(
        self, replicas: Mapping[TopicPartition, Sequence[int] | None]
    ) -> dict[TopicPartition, KafkaError | None]:
        self.calls.append(("reassign", dict(replicas)))
        for name, wanted in replicas.items():
            if name in self.refused:
                continue
            if wanted is None:
                del self.ongoing[name]
                continue
            before = self.replicas(name)
            adding = tuple(broker for broker in wanted if broker not in before)
            removing = tuple(broker for broker in before if broker not in wanted)
            self.ongoing[name] = OngoingReassignment((*wanted, *removing), adding, removing)
        return {name: self.refused.get(name) for name in replicas}

    async def throttle_moves(
        self,
        moves: Mapping[TopicPartition, tuple[Sequence[int], Sequence[int]]],
        brokers: Iterable[int],
        bytes_per_s: int,
    ) -> None:
        self.calls.append(("throttle", (sorted(brokers), bytes_per_s)))
        for broker in brokers:
            self.limit(broker, bytes_per_s)
        for name in moves:
            self.settings.setdefault(name.topic, {})["leader.replication.throttled.replicas"] = "0:1"

    def limit(self, broker: int, bytes_per_s: int) -> None:
        """Set the limits of copying of a broker."""
        self.settings[str(broker)] = dict.fromkeys(
            ("leader.replication.throttled.rate", "follower.replication.throttled.rate"), str(bytes_per_s)
        )

    async def lift_throttles(self, topics: Iterable[str], brokers: Iterable[int]) -> None:
        self.calls.append(("lift", (list(topics), list(brokers))))
        self.settings.clear()

    async def describe_configs(self, kind: int, name: str) -> list[ConfigEntry]:
        return await super().describe_configs(kind, name)

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None = None, *, unclean: bool = False
    ) -> dict[TopicPartition, KafkaError | None]:
        wanted = list(partitions or ())
        self.calls.append(("unclean" if unclean else "elect", wanted))
        for name in wanted:
            if name in self.refused:
                continue
            info = self.topics[name.topic].partitions[name.partition]
            live = [broker for broker in info.replicas if broker in self.brokers]
            self.topics[name.topic].partitions[name.partition] = replace(
                info, leader=live[0] if unclean else info.replicas[0]
            )
        return {name: self.refused.get(name) for name in wanted}


REFUSAL = KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "denied: ALTER on cluster")

"""Replication throttles around moves of replicas (KIP-73), as Kafka's reassignment tool sets them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..bounds import BrokerId, Name, NumberOfBytes
from ..records import TopicPartition
from .configs import ConfigAdmin
from .values import BROKER_RESOURCE, TOPIC_RESOURCE

RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LEADERS, FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"


class ThrottleAdmin(ConfigAdmin):
    """The methods that set and lift a limit in bytes/s for the copying of replicas that move."""

    async def throttle_moves(
        self,
        moves: Mapping[TopicPartition, tuple[Sequence[BrokerId], Sequence[BrokerId]]],
        brokers: Iterable[BrokerId],
        bytes_per_s: NumberOfBytes,
    ) -> None:
        """Limit the bytes/s that the moves (replicas before and after) copy from and to each broker."""
        rates = dict.fromkeys(RATES, str(bytes_per_s))
        for broker_id in sorted(brokers):
            await self.alter_configs(BROKER_RESOURCE, str(broker_id), rates)
        topics: dict[str, tuple[list[str], list[str]]] = {}
        for (topic, index), (before, after) in moves.items():
            leaders, followers = topics.setdefault(topic, ([], []))
            leaders += [f"{index}:{broker_id}" for broker_id in before]
            followers += [f"{index}:{broker_id}" for broker_id in after if broker_id not in before]
        for topic, (leaders, followers) in topics.items():
            lists = {LEADERS: ",".join(leaders), FOLLOWERS: ",".join(followers)}
            await self.alter_configs(TOPIC_RESOURCE, topic, lists)

    async def lift_throttles(self, topics: Iterable[Name], brokers: Iterable[BrokerId]) -> None:
        """Remove the limits that `throttle_moves` set from these topics and brokers."""
        for broker_id in sorted(set(brokers)):
            await self.alter_configs(BROKER_RESOURCE, str(broker_id), dict.fromkeys(RATES))
        for topic in sorted(set(topics)):
            await self.alter_configs(TOPIC_RESOURCE, topic, {LEADERS: None, FOLLOWERS: None})

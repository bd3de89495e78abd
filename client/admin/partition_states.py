"""States of partitions, one by one and counted by topic, for `ottla cluster`, `ottla topic` and the console. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ..connections.metadata import NO_LEADER, PartitionInfo, TopicInfo
from ..records import TopicPartition

OFFLINE: Final = "offline"
UNDER_REPLICATED: Final = "under-replicated"
REASSIGNING: Final = "reassigning"
Adding = Mapping[TopicPartition, Collection[int]]
"""The replicas that reassignments in progress add, by partition; none for a reassignment that only removes replicas."""


@dataclass(frozen=True, slots=True)
class TopicStates:
    """The numbers of a topic's partitions, and of its offline, under-replicated and reassigning partitions.

    A partition counts in each of its states. `missing` are the brokers whose replicas are outside the ISR, in order.
    """

    topic: str
    is_internal: bool
    partitions: int
    offline: int
    under_replicated: int
    reassigning: int
    missing: tuple[int, ...]

    @property
    def is_healthy(self) -> bool:
        """True if all partitions have a leader and all replicas are in sync."""
        return not self.offline and not self.under_replicated

    @property
    def text(self) -> str:
        """The states of partitions that are not healthy, such as `1 offline, 2 under-replicated`; else `healthy`."""
        counts = [(self.offline, OFFLINE), (self.under_replicated, UNDER_REPLICATED)]
        return ", ".join(f"{number} {state}" for number, state in counts if number) or "healthy"


def missing_replicas(partition: PartitionInfo, adding: Collection[int] = ()) -> list[int]:
    """Return the brokers whose replicas of a partition are outside the ISR, in the order of the replicas.

    Replicas that a reassignment is `adding` do not count: they still copy the partition.
    """
    if len(partition.isr) == len(partition.replicas):
        return []
    return [broker for broker in partition.replicas if broker not in partition.isr and broker not in adding]


def states_of(topic: str, partition: PartitionInfo, adding: Adding) -> list[str]:
    """Return the states of a topic's partition: OFFLINE, UNDER_REPLICATED, REASSIGNING, or none; the worst is first."""
    name = TopicPartition(topic, partition.index)
    states = [OFFLINE] if partition.leader == NO_LEADER else []
    if missing_replicas(partition, adding.get(name, ())):
        states.append(UNDER_REPLICATED)
    return [*states, REASSIGNING] if name in adding else states


def topic_states(topic: TopicInfo, adding: Adding) -> TopicStates:
    """Return the states of a topic's partitions."""
    states: Counter[str] = Counter()
    missing: set[int] = set()
    for partition in topic.partitions.values():
        states.update(states_of(topic.name, partition, adding))
        missing.update(
            missing_replicas(partition, adding.get(TopicPartition(topic.name, partition.index), ()))
        )
    return TopicStates(
        topic.name,
        is_internal(topic),
        len(topic.partitions),
        states[OFFLINE],
        states[UNDER_REPLICATED],
        states[REASSIGNING],
        tuple(sorted(missing)),
    )


def worst_first(states: Iterable[TopicStates]) -> list[TopicStates]:
    """Sort users' topics before internal topics, then the topics with the most offline and under-replicated partitions
    first."""
    return sorted(
        states,
        key=lambda topic: (topic.is_internal, -topic.offline, -topic.under_replicated, topic.topic),
    )


def own_first(topic: TopicInfo) -> tuple[bool, str]:
    """Return the key that sorts users' own topics before internal topics, and each by name."""
    return is_internal(topic), topic.name


def is_internal(topic: TopicInfo) -> bool:
    """Return whether a topic is internal, or has the name of one: a cluster may report a mirrored topic as a user's."""
    return topic.is_internal or topic.name.startswith("__")

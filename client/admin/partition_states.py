"""Partitions that are offline or under-replicated, summed up by topic. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from ...client.connections.metadata import NO_LEADER, PartitionInfo, TopicInfo
from ...client.records import TopicPartition


@dataclass(frozen=True, slots=True)
class TopicProblems:
    """The numbers of a topic's partitions that are offline (without a leader), and that are under-replicated.

    An offline partition may also be under-replicated. `missing` are the brokers whose replicas are outside the ISR, in
    order.
    """

    topic: str
    is_internal: bool
    partitions: int
    offline: int
    under_replicated: int
    missing: tuple[int, ...]


def missing_replicas(partition: PartitionInfo, adding: Collection[int] = ()) -> list[int]:
    """Return the brokers whose replicas of a partition are outside the ISR, in the order of the replicas.

    Replicas that a reassignment is `adding` do not count: they still copy the partition.
    """
    return [broker for broker in partition.replicas if broker not in partition.isr and broker not in adding]


def problems_by_topic(
    topics: Iterable[TopicInfo], adding: Mapping[TopicPartition, Collection[int]]
) -> list[TopicProblems]:
    """Return the problems of all topics that have any: users' topics before internal topics, then the topics with the
    most offline and the most under-replicated partitions.

    `adding` has the replicas that reassignments add to a partition.
    """
    found = [problems for topic in topics if (problems := _problems_of(topic, adding)) is not None]
    return sorted(
        found,
        key=lambda problems: (
            problems.is_internal,
            -problems.offline,
            -problems.under_replicated,
            problems.topic,
        ),
    )


def _problems_of(topic: TopicInfo, adding: Mapping[TopicPartition, Collection[int]]) -> TopicProblems | None:
    """Return the problems of a topic, or None if it is healthy."""
    offline = under_replicated = 0
    missing: set[int] = set()
    for partition in topic.partitions.values():
        if partition.leader == NO_LEADER:
            offline += 1
        if len(partition.isr) == len(partition.replicas):
            continue
        absent = missing_replicas(partition, adding.get(TopicPartition(topic.name, partition.index), ()))
        if absent:
            under_replicated += 1
            missing.update(absent)
    if not offline and not under_replicated:
        return None
    return TopicProblems(
        topic.name,
        topic.is_internal,
        len(topic.partitions),
        offline,
        under_replicated,
        tuple(sorted(missing)),
    )

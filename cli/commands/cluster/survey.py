"""The state of a cluster as a client sees it: brokers, topics, the metadata quorum, and the problems among them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from ....client.admin import Admin, ClusterDescription, QuorumDescription
from ....client.admin.least_in_sync import least_in_sync
from ....client.admin.partition_states import Adding, missing_replicas, own_first, states_of
from ....client.connections.metadata import PartitionInfo, TopicInfo
from ....client.records import TopicPartition
from ....protocol.errors import ErrorCode, KafkaError

QUORUM_TIMEOUT_MS = 5_000
"""Milliseconds to wait for a broker's answer about the quorum. A broker itself waits 2 s for the quorum's leader."""
HEALTHY: Final = "healthy"
"""State of partitions and brokers beside the states of `client.admin.partition_states`."""


@dataclass(frozen=True, slots=True)
class Health:
    """The problems of a cluster; empty lists mean that there are none. Partitions are written `topic-index`."""

    quorum_leader: int | None = None
    quorum_problem: str = ""
    """The reason for the missing leader, if a broker knows it."""
    quorum_abstaining: list[int] = field(default_factory=list)
    quorum_silent: list[int] = field(default_factory=list)
    brokers_down: list[int] = field(default_factory=list)
    brokers_fenced: list[int] = field(default_factory=list)
    fenced_since_ms: dict[int, int] = field(default_factory=dict)
    """The time since which a broker is fenced, in ms since 1970, where the cluster reports it."""
    offline: list[str] = field(default_factory=list)
    below_min_isr: list[str] = field(default_factory=list)
    under_replicated: list[str] = field(default_factory=list)

    @property
    def healthy(self) -> bool:
        """True if the cluster has no problem."""
        return self.quorum_leader is not None and not any(
            (
                self.quorum_problem,
                self.quorum_abstaining,
                self.quorum_silent,
                self.brokers_down,
                self.brokers_fenced,
                self.offline,
                self.below_min_isr,
                self.under_replicated,
            )
        )


def assess(
    topics: Iterable[TopicInfo],
    live: Iterable[int],
    fenced: Iterable[int],
    min_isr: Mapping[str, int],
    quorum_leader: int | None,
    adding: Adding,
) -> Health:
    """Return the health of a cluster from these answers. Pure.

    A broker that holds replicas but is neither live nor fenced counts as down. Replicas that a reassignment is `adding`
    do not count as missing yet.
    """
    known = set(live)
    health = Health(quorum_leader, brokers_fenced=sorted(fenced))
    holding: set[int] = set()
    for topic in sorted(topics, key=own_first):
        for partition in topic.partitions.values():
            name = f"{topic.name}-{partition.index}"
            holding.update(partition.replicas)
            if partition.leader < 0:
                health.offline.append(name)
            added = adding.get(TopicPartition(topic.name, partition.index), ())
            if missing_replicas(partition, added):
                health.under_replicated.append(name)
            settled = len(set(partition.replicas).difference(added))
            if len(partition.isr) < min(min_isr.get(topic.name, 1), settled):
                health.below_min_isr.append(name)
    health.brokers_down.extend(sorted(holding - known - set(health.brokers_fenced)))
    return health


@dataclass(frozen=True, slots=True)
class Survey:
    """The answers of a cluster about itself, and its health. `quorum` is None if no broker has described the quorum."""

    cluster: ClusterDescription
    topics: list[TopicInfo]
    quorum: QuorumDescription | None
    adding: Adding
    health: Health

    def state_of(self, topic: str, partition: PartitionInfo) -> str:
        """Return the state of a partition: `offline`, `under-replicated`, `reassigning` or `healthy`."""
        return next(iter(states_of(topic, partition, self.adding)), HEALTHY)


async def survey(admin: Admin) -> Survey:
    """Ask a cluster for its brokers, topics, quorum and reassignments, and assess its health."""
    cluster = await admin.describe_cluster()
    topics = await admin.describe_topics()
    quorum, problem = await _quorum(admin, [broker.id for broker in cluster.brokers])
    short = [
        topic.name
        for topic in topics
        if any(len(partition.isr) < len(partition.replicas) for partition in topic.partitions.values())
    ]
    min_isr = await least_in_sync(admin, short)
    moving = await admin.list_partition_reassignments()
    adding: Adding = {name: move.adding for name, move in moving.items()}
    leader = None if quorum is None else quorum.leader_id
    live = [broker.id for broker in cluster.brokers]
    health = replace(
        assess(topics, live, cluster.fenced, min_isr, leader, adding),
        quorum_problem=problem,
        quorum_abstaining=sorted(quorum.abstaining) if quorum is not None else [],
        quorum_silent=sorted(quorum.silent) if quorum is not None else [],
        fenced_since_ms={
            broker.address.id: broker.since_ms
            for broker in cluster.fenced_brokers
            if broker.since_ms is not None
        },
    )
    return Survey(cluster, topics, quorum, adding, health)


async def _quorum(admin: Admin, brokers: Iterable[int]) -> tuple[QuorumDescription | None, str]:
    """Return the description of the metadata quorum, and its problem as text.

    Every broker is asked: perhaps only one of them knows that the quorum lost entries.
    """
    found = await asyncio.gather(*(_seen_by(admin, broker_id) for broker_id in brokers))
    problems = [answer for answer in found if isinstance(answer, str)]
    described = [answer for answer in found if isinstance(answer, QuorumDescription)]
    led = [description for description in described if description.leader_id is not None]
    return next(iter(led or described), None), next(iter(problems), "")


async def _seen_by(admin: Admin, broker_id: int) -> QuorumDescription | str | None:
    """Return the metadata quorum as this broker describes it, or the reason why the broker does not follow it.

    None if there is no timely answer.
    """
    try:
        return await admin.describe_quorum(broker_id=broker_id, timeout_ms=QUORUM_TIMEOUT_MS)
    except KafkaError as error:
        return error.message if error.code is ErrorCode.BROKER_NOT_AVAILABLE else None

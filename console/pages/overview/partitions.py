"""The page of partitions with problems, and of partitions that are being reassigned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ....client.connections.metadata import NO_LEADER, PartitionInfo
from ....client.records import TopicPartition
from ...area import BadQuestion, Paged, Rendered, Visit
from ...formats import UNKNOWN, numbers
from ...live.partition_problems import missing_replicas
from ...live.snapshots import ClusterSnapshot

PROBLEM, OFFLINE, UNDER_REPLICATED, REASSIGNING = "problem", "offline", "under-replicated", "reassigning"
STATES: Final = (PROBLEM, OFFLINE, UNDER_REPLICATED, REASSIGNING)
"""The states by which the page can be filtered; PROBLEM is OFFLINE or UNDER_REPLICATED."""


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """A partition as a table row. `missing` are the brokers whose replicas are outside the ISR."""

    topic: str
    partition: int
    states: Sequence[str]
    leader: str
    replicas: str
    isr: str
    missing: str
    adding: str
    removing: str

    @property
    def name(self) -> str:
        """The topic and the number of the partition."""
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class PartitionsPage:
    """The data that the template of the page "Partitions" shows. `topic` limits the partitions unless it is empty."""

    paged: Paged[tuple[TopicPartition, PartitionInfo]]
    rows: Sequence[PartitionRow]
    state: str
    states: Sequence[str]
    topic: str


def states_of(snapshot: ClusterSnapshot, name: TopicPartition, partition: PartitionInfo) -> list[str]:
    """Return the states of a partition: OFFLINE, UNDER_REPLICATED, REASSIGNING, or none."""
    states = [OFFLINE] if partition.leader == NO_LEADER else []
    if missing_replicas(partition, snapshot.adding.get(name, ())):
        states.append(UNDER_REPLICATED)
    return [*states, REASSIGNING] if name in snapshot.reassigning else states


def partitions_in(
    snapshot: ClusterSnapshot, state: str, topic: str = ""
) -> list[tuple[TopicPartition, PartitionInfo]]:
    """Return the partitions in a state, of one topic unless `topic` is empty.

    Offline partitions come first, then the partitions of users' topics.
    """
    topics = {topic.name: topic for topic in snapshot.topics}
    found: dict[TopicPartition, PartitionInfo] = {}
    if state in (PROBLEM, OFFLINE):
        found |= dict(snapshot.offline)
    if state in (PROBLEM, UNDER_REPLICATED):
        found |= dict(snapshot.under_replicated)
    if state == REASSIGNING:
        for name in snapshot.reassigning:
            if name.topic in topics and name.partition in topics[name.topic].partitions:
                found[name] = topics[name.topic].partitions[name.partition]
    return sorted(
        ((name, partition) for name, partition in found.items() if topic in ("", name.topic)),
        key=lambda item: (item[1].leader != NO_LEADER, topics[item[0].topic].is_internal, item[0]),
    )


def partition_row(snapshot: ClusterSnapshot, name: TopicPartition, partition: PartitionInfo) -> PartitionRow:
    """Return the table row of a partition."""
    reassignment = snapshot.reassigning.get(name)
    return PartitionRow(
        *name,
        states_of(snapshot, name, partition),
        UNKNOWN if partition.leader == NO_LEADER else str(partition.leader),
        numbers(partition.replicas),
        numbers(partition.isr),
        numbers(missing_replicas(partition, snapshot.adding.get(name, ()))),
        numbers(reassignment.adding) if reassignment else UNKNOWN,
        numbers(reassignment.removing) if reassignment else UNKNOWN,
    )


async def show(visit: Visit) -> Rendered:
    """Return the page of the partitions in the state that the query names: those with a problem by default."""
    state, topic = visit.text("state", PROBLEM), visit.text("topic")
    if state not in STATES:
        raise BadQuestion(f"'state' is one of {', '.join(STATES)}, not {state[:40]!r}")
    snapshot = await visit.sampler.snapshot()
    paged = visit.paged(partitions_in(snapshot, state, topic))
    rows = [partition_row(snapshot, name, partition) for name, partition in paged.rows]
    model = PartitionsPage(paged, rows, state, STATES, topic)
    return Rendered("Partitions", "partitions.html", model)

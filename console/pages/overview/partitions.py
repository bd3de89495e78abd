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
from ...sorting import Column, Sorted

PROBLEM, OFFLINE, UNDER_REPLICATED, REASSIGNING = "problem", "offline", "under-replicated", "reassigning"
STATES: Final = (PROBLEM, OFFLINE, UNDER_REPLICATED, REASSIGNING)
"""The states by which the page can be filtered; PROBLEM is OFFLINE or UNDER_REPLICATED."""


Place = tuple[TopicPartition, PartitionInfo]


@dataclass(frozen=True, slots=True)
class ProblemRow:
    """A partition as a table row.

    `missing` are the brokers whose replicas are outside the ISR. `adding` and `removing` are empty unless the partition
    is being reassigned.
    """

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

    sorted: Sorted[Place]
    paged: Paged[Place]
    rows: Sequence[ProblemRow]
    state: str
    states: Sequence[str]
    topic: str


def states_of(snapshot: ClusterSnapshot, name: TopicPartition, partition: PartitionInfo) -> list[str]:
    """Return the states of a partition: OFFLINE, UNDER_REPLICATED, REASSIGNING, or none."""
    states = [OFFLINE] if partition.leader == NO_LEADER else []
    if missing_replicas(partition, snapshot.adding.get(name, ())):
        states.append(UNDER_REPLICATED)
    return [*states, REASSIGNING] if name in snapshot.reassigning else states


def partitions_in(snapshot: ClusterSnapshot, state: str, topic: str = "") -> list[Place]:
    """Return the partitions in a state, of one topic unless `topic` is empty; users' topics come first."""
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
    places = [(name, partition) for name, partition in found.items() if topic in ("", name.topic)]
    return sorted(places, key=lambda place: (topics[place[0].topic].is_internal, place[0]))


def partition_row(snapshot: ClusterSnapshot, name: TopicPartition, partition: PartitionInfo) -> ProblemRow:
    """Return the table row of a partition."""
    reassignment = snapshot.reassigning.get(name)
    return ProblemRow(
        *name,
        states_of(snapshot, name, partition),
        UNKNOWN if partition.leader == NO_LEADER else str(partition.leader),
        numbers(partition.replicas),
        numbers(partition.isr),
        numbers(missing_replicas(partition, snapshot.adding.get(name, ()))),
        numbers(reassignment.adding) if reassignment else "",
        numbers(reassignment.removing) if reassignment else "",
    )


def columns_of(snapshot: ClusterSnapshot) -> tuple[Column[Place], ...]:
    """Return the columns of the table of partitions.

    In order of their states, offline partitions come first, then the partitions of users' topics.
    """
    internal = {topic.name for topic in snapshot.topics if topic.is_internal}

    def adding(place: Place) -> Sequence[int]:
        return snapshot.adding.get(place[0], ())

    return (
        Column("partition", "partition", lambda place: place[0]),
        Column("state", "state", lambda place: (place[1].leader != NO_LEADER, place[0].topic in internal)),
        Column("leader", "leader", lambda place: None if place[1].leader == NO_LEADER else place[1].leader),
        Column("replicas", "replicas", lambda place: place[1].replicas),
        Column("isr", "ISR", lambda place: (len(place[1].isr), place[1].isr)),
        Column("missing", "missing", lambda place: missing_replicas(place[1], adding(place))),
        Column("adding", "adding", lambda place: adding(place) or None),
        Column("removing", "removing"),
    )


async def show(visit: Visit) -> Rendered:
    """Return the page of the partitions in the state that the query names: those with a problem by default."""
    state, topic = visit.text("state", PROBLEM), visit.text("topic")
    if state not in STATES:
        raise BadQuestion(f"'state' is one of {', '.join(STATES)}, not {state[:40]!r}")
    snapshot = await visit.sampler.snapshot()
    places = visit.sorted(partitions_in(snapshot, state, topic), columns_of(snapshot), "state")
    paged = visit.paged(places.rows)
    rows = [partition_row(snapshot, name, partition) for name, partition in paged.rows]
    model = PartitionsPage(places, paged, rows, state, STATES, topic)
    return Rendered("Partitions", "partitions.html", model)

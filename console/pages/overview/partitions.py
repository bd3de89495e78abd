"""The page of partitions with problems, and of partitions that are being reassigned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ....client.admin.partition_states import (
    OFFLINE,
    REASSIGNING,
    UNDER_REPLICATED,
    TopicStates,
    missing_replicas,
    own_first,
    states_of,
)
from ....client.connections.metadata import NO_LEADER, PartitionInfo
from ....client.records import TopicPartition
from ...area import BadQuestion, Paged, Rendered, Visit
from ...formats import UNKNOWN, numbers
from ...live.snapshots import ClusterSnapshot
from ...sorting import Column, Sorted

PROBLEM: Final = "problem"
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


def partitions_in(snapshot: ClusterSnapshot, state: str, topic: str = "") -> list[Place]:
    """Return the partitions in a state, of one topic unless `topic` is empty; users' topics come first."""
    wanted = {OFFLINE, UNDER_REPLICATED} if state == PROBLEM else {state}
    return [
        (TopicPartition(found.name, index), partition)
        for found in sorted(snapshot.topics, key=own_first)
        if topic in ("", found.name) and _has_any(snapshot.states[found.name])
        for index, partition in sorted(found.partitions.items())
        if not wanted.isdisjoint(states_of(found.name, partition, snapshot.adding))
    ]


def _has_any(states: TopicStates) -> bool:
    return bool(states.reassigning) or not states.is_healthy


def partition_row(snapshot: ClusterSnapshot, name: TopicPartition, partition: PartitionInfo) -> ProblemRow:
    """Return the table row of a partition."""
    reassignment = snapshot.reassigning.get(name)
    return ProblemRow(
        *name,
        states_of(name.topic, partition, snapshot.adding),
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

"""The page of reassignments: those in progress with their progress, limits of copying, and leaders by broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ....client.admin import OngoingReassignment
from ....client.connections.metadata import NO_LEADER, TopicInfo
from ....client.records import TopicPartition
from ....protocol.errors import KafkaError
from ...area import Paged, Rendered, Visit
from ...formats import UNKNOWN, byte_rate, link, numbers
from ...live.snapshots import ClusterSnapshot
from ...live.throttles import CopyLimit, Throttles
from ...sorting import Column, Sorted

Ongoing = tuple[TopicPartition, OngoingReassignment]


@dataclass(frozen=True, slots=True)
class OngoingRow:
    """A reassignment in progress as a table row.

    `copied` is the part of its bytes that new replicas have, 0 to 1; None if unknown. `size` is the bytes of a replica.
    `cancel` is the URL of the form that cancels it.
    """

    topic: str
    name: str
    leader: str
    replicas: str
    adding: str
    removing: str
    size: int | None
    copied: float | None
    cancel: str

    @property
    def copied_text(self) -> str:
        """The copied part in percent, or a dash."""
        return UNKNOWN if self.copied is None else f"{self.copied:.0%}"


@dataclass(frozen=True, slots=True)
class LeaderRow:
    """A broker as a table row: its replicas, the partitions that it leads, and those whose preferred leader it is."""

    broker: int
    replicas: int
    leads: int
    preferred: int
    is_active: bool


@dataclass(frozen=True, slots=True)
class ThrottleRow:
    """Equal limits of copying of some brokers as a line."""

    brokers: str
    leader: str
    follower: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassignmentsPage:
    """The data that the template of the page "Reassignments" shows.

    `throttle_trouble` is the reason why limits are unknown. `topics` are suggested names.
    """

    sorted: Sorted[Ongoing]
    paged: Paged[Ongoing]
    rows: Sequence[OngoingRow]
    throttles: Sequence[ThrottleRow]
    throttle_trouble: str
    leaders: Sequence[LeaderRow]
    not_preferred: int
    offline: int
    topics: Sequence[str]

    @property
    def has_idle_throttle(self) -> bool:
        """True if limits remain though no reassignment is in progress."""
        return bool(self.throttles) and not self.paged.total


COLUMNS: Final = (
    Column[Ongoing]("partition", "partition", lambda ongoing: ongoing[0]),
    Column[Ongoing]("leader", "leader"),
    Column[Ongoing]("replicas", "replicas"),
    Column[Ongoing]("adding", "adding", lambda ongoing: ongoing[1].adding),
    Column[Ongoing]("removing", "removing", lambda ongoing: ongoing[1].removing),
    Column[Ongoing]("size", "size", is_number=True),
    Column[Ongoing]("copied", "copied", is_number=True),
)


@dataclass(frozen=True, slots=True)
class Copies:
    """The bytes of replicas by broker, as far as brokers report them."""

    sizes: Mapping[tuple[int, TopicPartition], int] = field(default_factory=dict)

    def size(self, name: TopicPartition, brokers: Iterable[int]) -> int | None:
        """Return the bytes of the largest replica on these brokers; None if it is unknown."""
        known = [self.sizes[broker, name] for broker in brokers if (broker, name) in self.sizes]
        return max(known, default=None)

    def copied(self, name: TopicPartition, ongoing: OngoingReassignment) -> float | None:
        """Return the part of the bytes that the new replicas have, 0 to 1; None if it is unknown."""
        old = [broker for broker in ongoing.replicas if broker not in ongoing.adding]
        whole = self.size(name, [*old, *ongoing.removing])
        if not ongoing.adding or not whole:
            return None
        parts = [self.sizes.get((broker, name), 0) / whole for broker in ongoing.adding]
        return min(1.0, sum(parts) / len(parts))


def ongoing_row(topic: TopicInfo | None, ongoing: Ongoing, copies: Copies) -> OngoingRow:
    """Return the table row of a reassignment in progress; `topic` is its topic, None if the topic is gone."""
    name, moving = ongoing
    info = None if topic is None else topic.partitions.get(name.partition)
    leader = NO_LEADER if info is None else info.leader
    every = [*moving.replicas, *moving.removing]
    return OngoingRow(
        name.topic,
        f"{name.topic}-{name.partition}",
        UNKNOWN if leader == NO_LEADER else str(leader),
        numbers(broker for broker in moving.replicas if broker not in moving.removing),
        numbers(moving.adding),
        numbers(moving.removing),
        copies.size(name, every),
        copies.copied(name, moving),
        link("/reassignments/cancel", topic=name.topic, partition=name.partition),
    )


def leader_rows(snapshot: ClusterSnapshot) -> list[LeaderRow]:
    """Return the table rows of brokers with the partitions that they lead, by id."""
    live = {broker.id for broker in snapshot.cluster.brokers}
    preferred = Counter(partition.replicas[0] for _, partition in snapshot.partitions() if partition.replicas)
    return [
        LeaderRow(broker, snapshot.held[broker], snapshot.leads[broker], preferred[broker], broker in live)
        for broker in sorted({*live, *snapshot.held})
    ]


def throttle_rows(throttles: Mapping[int, CopyLimit]) -> list[ThrottleRow]:
    """Return the limits of copying as lines. Brokers with equal limits share a line."""
    by_limit: dict[CopyLimit, list[int]] = {}
    for broker, throttle in sorted(throttles.items()):
        by_limit.setdefault(throttle, []).append(broker)
    return [
        ThrottleRow(numbers(brokers), byte_rate(throttle.leader), byte_rate(throttle.follower))
        for throttle, brokers in by_limit.items()
    ]


async def show(visit: Visit) -> Rendered:
    """Return the page of reassignments."""
    snapshot = await visit.sampler.snapshot()
    # The snapshot may be older than a reassignment that has just begun.
    reassigning = await visit.admin.list_partition_reassignments()
    ordered = visit.sorted(list(reassigning.items()), COLUMNS, "partition")
    paged = visit.paged(ordered.rows)
    copies = await _copies(visit, paged.rows)
    throttles = await visit.readings.throttles() or Throttles()
    topics = {topic.name: topic for topic in snapshot.topics}
    model = ReassignmentsPage(
        sorted=ordered,
        paged=paged,
        rows=[ongoing_row(topics.get(ongoing[0].topic), ongoing, copies) for ongoing in paged.rows],
        throttles=throttle_rows(throttles.brokers),
        throttle_trouble=throttles.trouble,
        leaders=leader_rows(snapshot),
        not_preferred=sum(
            partition.leader != NO_LEADER and partition.replicas[:1] != (partition.leader,)
            for _, partition in snapshot.partitions()
        ),
        offline=snapshot.offline_total,
        topics=snapshot.suggested_topics,
    )
    return Rendered("Reassignments", "reassignments.html", model)


async def _copies(visit: Visit, rows: Sequence[Ongoing]) -> Copies:
    """Return the sizes of the replicas of these partitions. Missing sizes are left out, as they must not hide the
    page."""
    if not rows:
        return Copies()
    try:
        answers = await visit.admin.describe_log_dirs(partitions=[name for name, _ in rows])
    except KafkaError:
        return Copies()
    return Copies(
        {
            (broker, name): size
            for broker, folders in answers.items()
            if not isinstance(folders, KafkaError)
            for folder in folders
            for name, size in folder.replicas.items()
        }
    )

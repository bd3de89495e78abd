"""The page that lists topics, with a search by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ....client.connections.metadata import NO_LEADER, TopicInfo
from ....client.records import TopicPartition
from ....protocol.errors import KafkaError
from ...area import Paged, Rendered, Visit
from ...live.counters import Rates, TopicTraffic
from ...searching import has_words


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic as a table row.

    `size` is the bytes of the largest replica of each partition, added up; None if no broker reports it. `is_size_part`
    is True if some partitions are not included. `records_in` is in records per second.
    """

    name: str
    is_internal: bool
    partitions: int
    replicas: str
    state: str
    is_well: bool
    size: int | None
    records_in: float | None
    is_size_part: bool = False


@dataclass(frozen=True, slots=True)
class TopicsPage:
    """The data that the template of the list of topics shows."""

    paged: Paged[TopicInfo]
    rows: Sequence[TopicRow]
    search: str
    shows_internal: bool
    total: int


def matching(topics: Sequence[TopicInfo], search: str, *, shows_internal: bool) -> list[TopicInfo]:
    """Return the topics whose names contain all words of the search, in order of their names."""
    return [
        topic
        for topic in sorted(topics, key=lambda topic: topic.name)
        if (shows_internal or not topic.is_internal) and has_words(topic.name, search)
    ]


def topic_row(topic: TopicInfo, sizes: Mapping[TopicPartition, int], rates: Rates) -> TopicRow:
    """Return the table row of a topic; `sizes` has the bytes of its partitions, `rates` its traffic."""
    state = state_of(topic)
    known = [sizes[key] for index in topic.partitions if (key := TopicPartition(topic.name, index)) in sizes]
    return TopicRow(
        topic.name,
        topic.is_internal,
        len(topic.partitions),
        replication_of(topic),
        state,
        state == "",
        sum(known) if known else None,
        rates.of_topic(topic.name, TopicTraffic.RECORDS_IN),
        0 < len(known) < len(topic.partitions),
    )


def state_of(topic: TopicInfo) -> str:
    """Return the numbers of a topic's leaderless and under-replicated partitions as text; empty if there are none."""
    partitions = topic.partitions.values()
    leaderless = sum(1 for partition in partitions if partition.leader == NO_LEADER)
    behind = sum(1 for partition in partitions if len(partition.isr) < len(partition.replicas))
    said = [f"{leaderless} without a leader"] if leaderless else []
    if behind:
        said.append(f"{behind} under-replicated")
    return ", ".join(said)


def replication_of(topic: TopicInfo) -> str:
    """Return the number of replicas of a topic's partitions as text; `1 to 3` where partitions differ."""
    numbers = sorted({len(partition.replicas) for partition in topic.partitions.values()})
    return " to ".join(map(str, dict.fromkeys((numbers[0], numbers[-1])))) if numbers else ""


async def show(visit: Visit) -> Rendered:
    """Return the page that lists topics. Sizes are requested only for the topics on this page of the table."""
    snapshot = await visit.sampler.snapshot()
    search, shows_internal = visit.text("q"), visit.text("internal") == "yes"
    paged = visit.paged(matching(snapshot.topics, search, shows_internal=shows_internal))
    partitions = [TopicPartition(topic.name, index) for topic in paged.rows for index in topic.partitions]
    try:
        sizes = await visit.admin.partition_sizes(partitions) if partitions else {}
    except KafkaError:  # Missing sizes must not hide the list.
        sizes = {}
    rows = [topic_row(topic, sizes, visit.sampler.rates) for topic in paged.rows]
    model = TopicsPage(paged, rows, search, shows_internal, len(snapshot.topics))
    return Rendered("Topics", "topics.html", model)

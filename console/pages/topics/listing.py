"""The page that lists topics, with a search by name, in the order of any column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ....client.admin.partition_states import TopicStates
from ....client.connections.metadata import TopicInfo
from ....client.records import TopicPartition
from ....protocol.errors import KafkaError
from ...area import Paged, Rendered, Visit
from ...live.counters import Rates, TopicTraffic
from ...live.shared_readings import TopicSize, sizes_by_topic
from ...live.snapshots import ClusterSnapshot
from ...searching import has_words
from ...sorting import Column, Sorted

SIZE = "size"


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic as a table row.

    `size` is the bytes of the largest replica of each partition, added up; None if no broker reports it. `is_size_part`
    is True if some partitions are not included. `records_in`, `bytes_in` and `bytes_out` are per second.
    """

    name: str
    is_internal: bool
    partitions: int
    replicas: str
    states: TopicStates
    size: int | None
    records_in: float | None
    bytes_in: float | None
    bytes_out: float | None
    is_size_part: bool = False

    @property
    def note(self) -> str:
        """The kind of the topic, and the number of partitions whose replicas move, as text; may be empty."""
        moving = f"{self.states.reassigning} reassigning" if self.states.reassigning else ""
        return ", ".join(filter(None, ("internal topic" if self.is_internal else "", moving)))


@dataclass(frozen=True, slots=True)
class TopicsPage:
    """The data that the template of the list of topics shows.

    `has_bytes` is True if the brokers report bytes per second. `trouble` is the reason why sizes are missing.
    """

    sorted: Sorted[TopicInfo]
    paged: Paged[TopicInfo]
    rows: Sequence[TopicRow]
    search: str
    shows_internal: bool
    total: int
    has_bytes: bool
    trouble: str


def matching(topics: Sequence[TopicInfo], search: str, *, shows_internal: bool) -> list[TopicInfo]:
    """Return the topics whose names contain all words of the search."""
    return [
        topic
        for topic in topics
        if (shows_internal or not topic.is_internal) and has_words(topic.name, search)
    ]


def columns_of(
    snapshot: ClusterSnapshot, rates: Rates, sizes: Mapping[str, TopicSize]
) -> list[Column[TopicInfo]]:
    """Return the columns of the list of topics. `sizes` are needed only for the order by size."""

    def faults(topic: TopicInfo) -> tuple[int, int, int]:
        states = snapshot.states[topic.name]
        return states.offline, states.under_replicated, states.reassigning

    def size(topic: TopicInfo) -> int | None:
        return sizes[topic.name].bytes if topic.name in sizes else None

    def rate(traffic: TopicTraffic, title: str) -> Column[TopicInfo]:
        def key(topic: TopicInfo) -> float | None:
            return rates.of_topic(topic.name, traffic)

        return Column(title.replace(" ", "-"), title, key, is_number=True, descending_first=True)

    columns = [
        Column[TopicInfo]("topic", "topic", lambda topic: topic.name),
        Column("state", "state", faults, descending_first=True),
        Column("partitions", "partitions", lambda topic: len(topic.partitions), True, True),
        Column("replicas", "replicas", replica_range, is_number=True, descending_first=True),
        Column(SIZE, "size", size, is_number=True, descending_first=True),
        rate(TopicTraffic.RECORDS_IN, "records in"),
    ]
    if TopicTraffic.BYTES_IN in rates.topics:
        columns += [rate(TopicTraffic.BYTES_IN, "bytes in"), rate(TopicTraffic.BYTES_OUT, "bytes out")]
    return columns


def topic_row(topic: TopicInfo, states: TopicStates, size: TopicSize | None, rates: Rates) -> TopicRow:
    """Return the table row of a topic with a size, which may be unknown; `rates` has the traffic of topics."""
    return TopicRow(
        topic.name,
        topic.is_internal,
        len(topic.partitions),
        replication_of(topic),
        states,
        None if size is None else size.bytes,
        rates.of_topic(topic.name, TopicTraffic.RECORDS_IN),
        rates.of_topic(topic.name, TopicTraffic.BYTES_IN),
        rates.of_topic(topic.name, TopicTraffic.BYTES_OUT),
        size is not None and size.partitions < len(topic.partitions),
    )


def replica_range(topic: TopicInfo) -> tuple[int, int] | None:
    """Return the smallest and the largest number of replicas of a topic's partitions; None without partitions."""
    numbers = [len(partition.replicas) for partition in topic.partitions.values()]
    return (min(numbers), max(numbers)) if numbers else None


def replication_of(topic: TopicInfo) -> str:
    """Return the number of replicas of a topic's partitions as text; `1 to 3` where partitions differ."""
    return " to ".join(map(str, dict.fromkeys(replica_range(topic) or ())))


async def show(visit: Visit) -> Rendered:
    """Return the page that lists topics.

    Sizes are requested only for the topics on this page of the table, unless they order the table.
    """
    snapshot, rates = await visit.sampler.snapshot(), visit.sampler.rates
    search, shows_internal = visit.text("q"), visit.text("internal") == "yes"
    found = matching(snapshot.topics, search, shows_internal=shows_internal)
    sizes: Mapping[str, TopicSize] = {}
    trouble = ""
    is_by_size = visit.text("sort").removeprefix("-") == SIZE
    if is_by_size:
        sizes, trouble = await _all_sizes(visit)
    ordered = visit.sorted(found, columns_of(snapshot, rates, sizes), "topic")
    paged = visit.paged(ordered.rows)
    if not is_by_size:
        sizes = await _sizes_of(visit, paged.rows)
    rows = [
        topic_row(topic, snapshot.states[topic.name], sizes.get(topic.name), rates) for topic in paged.rows
    ]
    has_bytes = TopicTraffic.BYTES_IN in rates.topics
    model = TopicsPage(ordered, paged, rows, search, shows_internal, len(snapshot.topics), has_bytes, trouble)
    return Rendered("Topics", "topics.html", model)


async def _all_sizes(visit: Visit) -> tuple[Mapping[str, TopicSize], str]:
    """Return the sizes of all topics, or the reason why they are missing."""
    try:
        sizes = await visit.readings.sizes()
    except KafkaError as error:
        return {}, f"Sizes are unknown: {error.message}"
    if sizes is None:
        return {}, "The sizes of all topics are being read. Reload the page in some seconds."
    return sizes, ""


async def _sizes_of(visit: Visit, topics: Sequence[TopicInfo]) -> Mapping[str, TopicSize]:
    partitions = [TopicPartition(topic.name, index) for topic in topics for index in topic.partitions]
    try:
        return sizes_by_topic(await visit.admin.partition_sizes(partitions)) if partitions else {}
    except KafkaError:  # Missing sizes must not hide the list.
        return {}

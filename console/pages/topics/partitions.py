"""The partitions of a topic as a table: leaders, in-sync replicas, offsets and sizes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from ....client.admin.partition_states import Adding, missing_replicas
from ....client.admin.records import EARLIEST, LATEST
from ....client.connections.metadata import NO_LEADER, PartitionInfo, TopicInfo
from ....client.records import TopicPartition
from ....protocol.errors import KafkaError
from ...area import Paged, Visit
from ...formats import UNKNOWN, link, numbers
from ...sorting import Column, Sorted

ValueT = TypeVar("ValueT")
Offsets = Mapping[TopicPartition, int | KafkaError]

PARTITIONS_SORTED_MAX: Final = 1_000
"""The most partitions of a topic whose table can be sorted by the answers of their leaders."""
REPORTED: Final = ("start", "end", "records", "size")
"""The columns with answers of leaders."""


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """The start and end offsets of partitions, or their leaders' errors, and their sizes in bytes."""

    starts: Offsets = field(default_factory=dict)
    ends: Offsets = field(default_factory=dict)
    sizes: Mapping[TopicPartition, int] = field(default_factory=dict)

    def start(self, name: TopicPartition) -> int | None:
        """Return the start offset of a partition; None if it is unknown."""
        return known(self.starts.get(name))

    def end(self, name: TopicPartition) -> int | None:
        """Return the end offset of a partition; None if it is unknown."""
        return known(self.ends.get(name))

    def records(self, name: TopicPartition) -> int | None:
        """Return the number of offsets between a partition's start and end, at least the number of its records."""
        start, end = self.start(name), self.end(name)
        return None if start is None or end is None else end - start

    def size(self, name: TopicPartition) -> int | None:
        """Return the size of a partition in bytes; None if it is unknown."""
        return self.sizes.get(name)


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """A partition of a topic as a table row.

    `start` and `end` are offsets, `records` is the most that may lie between them, and `size` is in bytes; unknown
    numbers are None. `missing` lists the replicas outside the ISR, except the replicas that a reassignment adds.
    `messages` is the URL of the newest messages.
    """

    index: int
    leader: str
    epoch: str
    is_preferred: bool
    replicas: str
    isr: str
    missing: str
    start: int | None
    end: int | None
    records: int | None
    size: int | None
    messages: str


@dataclass(frozen=True, slots=True)
class PartitionTable:
    """The partitions of a topic in order, and the rows on this page of the table.

    `sizes` are the known sizes of partitions in bytes: at least of the partitions on this page.
    """

    sorted: Sorted[PartitionInfo]
    paged: Paged[PartitionInfo]
    rows: Sequence[PartitionRow]
    sizes: Mapping[TopicPartition, int]


def partition_row(
    topic: str, partition: PartitionInfo, facts: PartitionFacts, adding: Adding
) -> PartitionRow:
    """Return the table row of a partition."""
    name = TopicPartition(topic, partition.index)
    return PartitionRow(
        partition.index,
        "" if partition.leader == NO_LEADER else str(partition.leader),
        str(partition.leader_epoch) if partition.leader_epoch >= 0 else UNKNOWN,
        partition.replicas[:1] == (partition.leader,),
        numbers(partition.replicas),
        numbers(partition.isr),
        ", ".join(map(str, missing_replicas(partition, adding.get(name, ())))),
        facts.start(name),
        facts.end(name),
        facts.records(name),
        facts.size(name),
        link("/messages", topic=topic, partition=partition.index),
    )


def known(offset: int | KafkaError | None) -> int | None:
    """Return an offset if the partition's leader reported it, else None."""
    return offset if isinstance(offset, int) and offset >= 0 else None


def columns_of(topic: TopicInfo, facts: PartitionFacts, adding: Adding) -> list[Column[PartitionInfo]]:
    """Return the columns of the table of partitions.

    Those with answers of leaders order only topics of at most PARTITIONS_SORTED_MAX partitions.
    """

    values = {"start": facts.start, "end": facts.end, "records": facts.records, "size": facts.size}
    is_sortable = len(topic.partitions) <= PARTITIONS_SORTED_MAX

    def reported(name: str) -> Column[PartitionInfo]:
        def key(partition: PartitionInfo) -> int | None:
            return values[name](TopicPartition(topic.name, partition.index))

        return Column(name, name, key if is_sortable else None, True, True)

    def missing(partition: PartitionInfo) -> int:
        return len(missing_replicas(partition, adding.get(TopicPartition(topic.name, partition.index), ())))

    return [
        Column[PartitionInfo]("partition", "partition", lambda partition: partition.index, is_number=True),
        Column("leader", "leader", lambda partition: partition.leader),
        Column("epoch", "epoch", lambda partition: partition.leader_epoch, True, True),
        Column("replicas", "replicas", lambda partition: partition.replicas),
        Column("isr", "ISR", missing, descending_first=True),
        *map(reported, REPORTED),
    ]


async def facts_of(visit: Visit, names: Sequence[TopicPartition]) -> PartitionFacts:
    """Return the offsets and sizes of these partitions. The answers to a request that fails are left out."""
    starts, ends, sizes = await asyncio.gather(
        _or_nothing(visit.admin.list_offsets(dict.fromkeys(names, EARLIEST))),
        _or_nothing(visit.admin.list_offsets(dict.fromkeys(names, LATEST))),
        _or_nothing(visit.admin.partition_sizes(names)),
    )
    return PartitionFacts(starts, ends, sizes)


async def partition_table(visit: Visit, topic: TopicInfo, adding: Adding) -> PartitionTable:
    """Return the table of a topic's partitions. Facts are requested only for the rows of this page, unless they order
    the table. Raises BadQuestion."""
    partitions = [topic.partitions[index] for index in sorted(topic.partitions)]
    facts = PartitionFacts()
    is_by_facts = visit.text("sort").removeprefix("-") in REPORTED
    if is_by_facts and len(partitions) <= PARTITIONS_SORTED_MAX:
        facts = await facts_of(visit, _names(topic, partitions))
    ordered = visit.sorted(partitions, columns_of(topic, facts, adding), "partition", at="partitions")
    paged = visit.paged(ordered.rows)
    if not is_by_facts:
        facts = await facts_of(visit, _names(topic, paged.rows))
    rows = [partition_row(topic.name, partition, facts, adding) for partition in paged.rows]
    return PartitionTable(ordered, paged, rows, facts.sizes)


def _names(topic: TopicInfo, partitions: Sequence[PartitionInfo]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, partition.index) for partition in partitions]


async def _or_nothing(
    request: Awaitable[Mapping[TopicPartition, ValueT]],
) -> Mapping[TopicPartition, ValueT]:
    """Return the answer to a request about partitions; nothing if the cluster refuses it."""
    try:
        return await request
    except KafkaError:  # Offsets that are missing must not hide the leaders and replicas.
        return {}

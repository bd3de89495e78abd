"""The page of a topic: leaders, in-sync sets, offsets and sizes of its partitions; settings with their sources."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ....client.admin import TOPIC_RESOURCE
from ....client.admin.records import EARLIEST, LATEST
from ....client.connections.metadata import NO_LEADER, PartitionInfo, TopicInfo
from ....client.records import TopicPartition
from ....protocol.errors import KafkaError
from ...area import Paged, Rendered, Visit
from ...formats import UNKNOWN, numbers
from ...live.counters import TopicTraffic
from ...live.sampler import WATCHED_S
from ...settings import SettingRow, setting_rows
from .listing import replication_of, state_of

Offsets = Mapping[TopicPartition, int | KafkaError]


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """A partition of a topic as a table row.

    `start` and `end` are offsets and `size` is in bytes; unknown numbers are None. `missing` lists the replicas outside
    the ISR.
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
    size: int | None

    @property
    def records(self) -> int | None:
        """The number of offsets between the partition's start and end, which is at least the number of its records."""
        return None if self.start is None or self.end is None else self.end - self.start


@dataclass(frozen=True, slots=True)
class TopicPage:
    """The data that the template of a topic's page shows."""

    name: str
    is_internal: bool
    replicas: str
    state: str
    paged: Paged[PartitionInfo]
    partitions: Sequence[PartitionRow]
    settings: Sequence[SettingRow]
    settings_trouble: str
    shows_all: bool
    records_in: float | None


def partition_row(
    topic: str,
    partition: PartitionInfo,
    starts: Offsets,
    ends: Offsets,
    sizes: Mapping[TopicPartition, int],
) -> PartitionRow:
    """Return the table row of a partition; `starts` and `ends` are offsets or the leaders' errors, `sizes` are
    bytes."""
    name = TopicPartition(topic, partition.index)
    return PartitionRow(
        partition.index,
        "" if partition.leader == NO_LEADER else str(partition.leader),
        str(partition.leader_epoch) if partition.leader_epoch >= 0 else UNKNOWN,
        partition.replicas[:1] == (partition.leader,),
        numbers(partition.replicas),
        numbers(partition.isr),
        ", ".join(str(replica) for replica in partition.replicas if replica not in partition.isr),
        known(starts.get(name)),
        known(ends.get(name)),
        sizes.get(name),
    )


def known(offset: int | KafkaError | None) -> int | None:
    """Return an offset if the partition's leader reported it, else None."""
    return offset if isinstance(offset, int) and offset >= 0 else None


async def topic_named(visit: Visit, *, age_max_s: float = WATCHED_S) -> TopicInfo:
    """Return the topic that the page's query names. Raises BadQuestion, and the errors of `Visit.topic`."""
    return await visit.topic(visit.required("name"), age_max_s=age_max_s)


async def show(visit: Visit) -> Rendered:
    """Return the page of the topic that the query names.

    Offsets and sizes are requested only for the partitions on this page of the table.
    """
    topic = await topic_named(visit)
    paged = visit.paged(sorted(topic.partitions.values(), key=lambda partition: partition.index))
    names = [TopicPartition(topic.name, partition.index) for partition in paged.rows]
    starts, ends, sizes, settings = await asyncio.gather(
        visit.admin.list_offsets(dict.fromkeys(names, EARLIEST)),
        visit.admin.list_offsets(dict.fromkeys(names, LATEST)),
        visit.admin.partition_sizes(names),
        visit.admin.describe_configs(TOPIC_RESOURCE, topic.name),
        return_exceptions=True,
    )
    for answer in (starts, ends, sizes, settings):
        if isinstance(answer, BaseException) and not isinstance(answer, KafkaError):
            raise answer
    shows_all = visit.text("all") == "yes"
    model = TopicPage(
        topic.name,
        topic.is_internal,
        replication_of(topic),
        state_of(topic),
        paged,
        [
            partition_row(
                topic.name,
                partition,
                {} if isinstance(starts, BaseException) else starts,
                {} if isinstance(ends, BaseException) else ends,
                {} if isinstance(sizes, BaseException) else sizes,
            )
            for partition in paged.rows
        ],
        [] if isinstance(settings, BaseException) else setting_rows(settings, shows_all=shows_all),
        str(settings) if isinstance(settings, BaseException) else "",
        shows_all,
        visit.sampler.rates.of_topic(topic.name, TopicTraffic.RECORDS_IN),
    )
    return Rendered(topic.name, "topic.html", model)

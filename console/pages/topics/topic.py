"""The page of a topic: its partitions, the groups that read it, its traffic over time, and its settings."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from ....client.admin import TOPIC_RESOURCE
from ....client.admin.partition_states import topic_states
from ....client.connections.metadata import TopicInfo
from ....client.dead_letters.found import names_letters
from ....protocol.errors import KafkaError
from ...area import Rendered, Visit
from ...charts import KIB, Chart, Span, draw
from ...formats import byte_rate, rate
from ...live.counters import TopicTraffic
from ...live.sampler import WATCHED_S, Sampler
from ...live.shared_readings import TopicSize, sizes_by_topic
from ...live.snapshots import answer_or_error
from ...settings import SettingRow, setting_rows
from .listing import TopicRow, topic_row
from .partitions import PartitionTable, partition_table
from .readers import ReaderTable, reader_table


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPage:
    """The data that the template of a topic's page shows.

    `readers` are the groups that read the topic, or the reason why they are unknown.
    """

    row: TopicRow
    partitions: PartitionTable
    readers: ReaderTable | str
    charts: Sequence[Chart]
    span: Span
    settings: Sequence[SettingRow]
    settings_trouble: str
    shows_all: bool

    @property
    def name(self) -> str:
        """The topic's name."""
        return self.row.name

    @property
    def has_letters(self) -> bool:
        """True if the topic has a usual name for dead letters."""
        return names_letters(self.name)


async def topic_named(visit: Visit, *, age_max_s: float = WATCHED_S) -> TopicInfo:
    """Return the topic that the page's query names. Raises BadQuestion, and the errors of `Visit.topic`."""
    return await visit.topic(visit.required("name"), age_max_s=age_max_s)


def charts_of(sampler: Sampler, topic: str, span_s: float) -> list[Chart]:
    """Return the charts of a topic's traffic: records and bytes per second. Unknown traffic has no chart."""
    records, bytes_in, bytes_out = (
        sampler.topic_series(topic, traffic, span_s)
        for traffic in (TopicTraffic.RECORDS_IN, TopicTraffic.BYTES_IN, TopicTraffic.BYTES_OUT)
    )
    now_s = sampler.now_s
    charts = (
        draw("records per second", [records], now_s=now_s, span_s=span_s, say=rate),
        draw("bytes per second", [bytes_in, bytes_out], now_s=now_s, span_s=span_s, say=byte_rate, unit=KIB),
    )
    return [chart for chart in charts if chart is not None]


async def show(visit: Visit) -> Rendered:
    """Return the page of the topic that the query names."""
    topic, span = await topic_named(visit), visit.span()
    snapshot = await visit.sampler.snapshot()
    partitions, readers, settings = await asyncio.gather(
        partition_table(visit, topic, snapshot.adding),
        reader_table(visit, topic.name),
        answer_or_error(visit.admin.describe_configs(TOPIC_RESOURCE, topic.name)),
    )
    size = await _size_of(visit, topic, partitions)
    shows_all = visit.text("all") == "yes"
    model = TopicPage(
        row=topic_row(topic, topic_states(topic, snapshot.adding), size, visit.sampler.rates),
        partitions=partitions,
        readers=readers,
        charts=charts_of(visit.sampler, topic.name, span.seconds),
        span=span,
        settings=[] if isinstance(settings, KafkaError) else setting_rows(settings, shows_all=shows_all),
        settings_trouble=str(settings) if isinstance(settings, KafkaError) else "",
        shows_all=shows_all,
    )
    return Rendered(topic.name, "topic.html", model)


async def _size_of(visit: Visit, topic: TopicInfo, partitions: PartitionTable) -> TopicSize | None:
    """Return the size of the topic; None if it is unknown.

    If the page shows only some of the partitions, the size is some seconds old.
    """
    if len(partitions.sizes) == len(topic.partitions):
        return sizes_by_topic(partitions.sizes).get(topic.name)
    try:
        sizes = await visit.readings.sizes()
    except KafkaError:  # A size that is missing must not hide the page.
        return None
    return (sizes or {}).get(topic.name)

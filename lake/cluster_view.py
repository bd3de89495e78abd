"""The worker's view of the cluster: topics and their settings, offsets, and cuts."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ..client.admin import TOPIC_RESOURCE, Admin, Cut, CutOffset
from ..client.admin.by_partition import settled
from ..client.admin.log_ends import ends_reaching
from ..client.records import TopicPartition
from ..client.transactions.cut_search import ReadPlace, largest_cut, within
from ..protocol.cluster.mirror_table import MirrorPhase
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages.list_offsets import EARLIEST, LATEST
from ..protocol.settings.config_key import ConfigError
from .failures import TableRefused
from .settings import TableSettings, table_settings

AT_A_TIME = 16
"""Topics whose settings are requested at the same time."""
PATIENCE_S: Final = 30.0
"""Seconds for which the end of a log that ends before a table's position is asked for again."""
_OTHERS: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED})
"""Errors of a topic that does not concern the worker, unless the topic was named."""


@dataclass(frozen=True, slots=True)
class LakeTopics:
    """The current partitions of some topics, and the topics' ids."""

    ids: Mapping[str, bytes]
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class CutPlaces:
    """A cut, and its place in each partition that has offsets to read, or that `start` did not have."""

    cut: int
    places: Mapping[TopicPartition, ReadPlace]
    is_newest: bool
    """False if more offsets can be read at once."""
    newest: Mapping[TopicPartition, int]
    """The offsets of the newest cut."""


class LakeView:
    """A client that asks the cluster. Methods raise KafkaError."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self.cluster_id = ""

    async def start(self) -> None:
        """Ask for the cluster's id."""
        self.cluster_id = (await self._admin.describe_cluster()).cluster_id

    async def tables(self, wanted: Collection[str] = ()) -> tuple[list[TableSettings], dict[str, str]]:
        """Return the settings of the topics that are written as tables, and by topic the errors in settings.

        `wanted`: the topics to look at; without any, all.
        """
        names = sorted(
            wanted or [name for name in await self._admin.list_topics() if not name.startswith("__")]
        )
        gate = asyncio.Semaphore(AT_A_TIME)
        errors: dict[str, str] = {}

        async def one(topic: str) -> TableSettings | None:
            async with gate:
                try:
                    entries = await self._admin.describe_configs(TOPIC_RESOURCE, topic)
                    return table_settings(
                        topic, {entry.name: entry.value for entry in entries if entry.value is not None}
                    )
                except ConfigError as error:
                    errors[topic] = str(error)
                except KafkaError as error:
                    if error.code not in _OTHERS:
                        raise
                    if wanted:
                        errors[topic] = error.message
            return None

        found = await asyncio.gather(*(one(topic) for topic in names))
        return [settings for settings in found if settings is not None], errors

    async def settings_of(self, table: str) -> TableSettings:
        """Return the settings of the topic that is written to a table. Raises TableRefused if there is none."""
        settings, _ = await self.tables()
        found = next((given for given in settings if given.table == table), None)
        if found is None:
            raise TableRefused(f"no topic with ottla.lake.enable=true is written to table {table}")
        return found

    async def topics(self, names: Iterable[str]) -> LakeTopics:
        """Return the current partitions of these topics. Raises TableRefused if a topic does not exist."""
        try:
            infos = await self._admin.describe_topics(list(names))
        except KafkaError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise TableRefused(f"{error.message}: the topic was deleted") from error
            raise
        for info in infos:
            if info.error:
                raise KafkaError(info.error, f"topic {info.name!r}: {info.error.message}")
        return LakeTopics(
            {info.name: info.id for info in infos},
            frozenset(TopicPartition(info.name, index) for info in infos for index in info.partitions),
        )

    async def beginnings(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the log start offsets."""
        return settled(await self._admin.list_offsets(dict.fromkeys(partitions, EARLIEST)))

    async def ends_reaching(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the ends of partitions once all have reached these offsets, or after 30 s."""

        async def ask() -> dict[TopicPartition, int]:
            return settled(await self._admin.list_offsets(dict.fromkeys(offsets, LATEST)))

        return await ends_reaching(ask, offsets, PATIENCE_S)

    async def copied_ends(self, topic: str) -> dict[int, int]:
        """Return by partition the offset at which the records end that a restoration or a mirror has copied. Raises
        TableRefused while a mirror copies the topic."""
        for mirror in await self._admin.describe_mirrors():
            if mirror.phase is not MirrorPhase.PROMOTED and any(copy.name == topic for copy in mirror.topics):
                raise TableRefused(
                    f"topic {topic!r} is still the copy of mirror {mirror.name!r}: promote the mirror, or let the "
                    "restoration end"
                )
        ends = await self._admin.copied_ends([topic])
        return {partition.partition: end for partition, end in ends.items()}

    async def newest_cut(self, partitions: Collection[TopicPartition]) -> int:
        """Return the commit index of the newest cut."""
        return (await self._admin.find_cut(partitions)).commit_index

    async def commit_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Commit the offsets of a topic's partitions to a group without members."""
        results = await self._admin.alter_offsets(
            group, {TopicPartition(topic, index): offset for index, offset in offsets.items()}
        )
        for error in results.values():
            if error is not None:
                raise error

    async def next_cut(
        self, names: Collection[str], start: Mapping[TopicPartition, int], first: int, offsets_max: int
    ) -> CutPlaces:
        """Return the newest cut of the topics' partitions within `offsets_max` offsets of `start`. A transaction with
        more is read alone.

        `first`: the commit index of the cut at `start`. A partition that was created during the search may have
        records of a transaction below the cut. So the search is repeated until no partition is new.
        """
        topics = await self.topics(names)
        while True:
            found = await self._cut_of(topics.partitions, start, first, offsets_max)
            again = await self.topics(names)
            if again == topics:
                return found
            topics = again

    async def _cut_of(
        self,
        partitions: frozenset[TopicPartition],
        start: Mapping[TopicPartition, int],
        first: int,
        offsets_max: int,
    ) -> CutPlaces:
        newest = await self._admin.find_cut(partitions)
        whole = settled(await self._admin.cut_offsets(newest, partitions))
        most = {partition: place.offset for partition, place in whole.items()}
        unknown = dict.fromkeys(partitions - start.keys(), ReadPlace(0, 0))
        available = sum(max(0, offset - start.get(partition, 0)) for partition, offset in most.items())
        if available <= offsets_max:
            places = within(start, most, whole, available)
            return CutPlaces(newest.commit_index, {**unknown, **places}, is_newest=True, newest=most)

        async def cut_at(index: int) -> dict[TopicPartition, CutOffset]:
            if index == newest.commit_index:
                return whole
            return settled(await self._admin.cut_offsets(Cut(index), partitions))

        chosen = await largest_cut(first, newest.commit_index, start, most, offsets_max, cut_at)
        return CutPlaces(chosen.index, {**unknown, **chosen.places}, is_newest=False, newest=most)

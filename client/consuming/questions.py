"""What a consumer can be asked about any partition, its own or not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..arguments import topic_name, topic_partition, topic_partitions, whole_number
from ..connections.cluster import Cluster
from ..lifecycle import Lifecycle
from ..records import TopicPartition
from .fetcher import EARLIEST, LATEST, Fetcher


class ConsumerQuestions:
    """The part of a consumer that answers them."""

    _cluster: Cluster
    _fetcher: Fetcher
    _life: Lifecycle

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The log start offset of each partition."""
        return await self._ends("beginning_offsets", partitions, EARLIEST)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The high watermark of each partition, the last stable offset with read_committed."""
        return await self._ends("end_offsets", partitions, LATEST)

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        """The offset of the first record not older than each timestamp (ms); None where there is none."""
        self._life.check_here(or_stopping=True)
        wanted = {topic_partition(one): whole_number("a timestamp", at) for one, at in timestamps.items()}
        found = await self._fetcher.list_offsets(wanted)
        return {one: None if offset < 0 else offset for one, (offset, _) in found.items()}

    async def partitions_for(self, topic: str) -> list[int]:
        """The partitions of a topic, empty if there is no such topic."""
        self._life.check_here(or_stopping=True)
        await self._cluster.refresh([topic_name(topic)])
        info = self._cluster.metadata.topics.get(topic)
        return [] if info is None else list(info.partitions)

    # inside

    async def _ends(
        self, call: str, partitions: Iterable[TopicPartition], which: int
    ) -> dict[TopicPartition, int]:
        self._life.check_here(or_stopping=True)
        found = await self._fetcher.list_offsets(dict.fromkeys(topic_partitions(call, partitions), which))
        return {one: offset for one, (offset, _) in found.items()}

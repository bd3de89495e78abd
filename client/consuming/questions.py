"""Questions to a consumer about any partition, assigned to it or not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...protocol.messages.list_offsets import EARLIEST, LATEST
from ..arguments import by_partition, topic_name, topic_partitions, whole_number
from ..connections.cluster import Cluster
from ..lifecycle import Lifecycle
from ..records import TopicPartition
from .assigned import FetchOptions
from .fetcher import Fetcher
from .outcome_reader import read_outcomes
from .outcomes import TransactionOutcome


class ConsumerQuestions:
    """The methods of a consumer that look up offsets, partitions and transaction outcomes of any partition, assigned or
    not."""

    _cluster: Cluster
    _fetch_options: FetchOptions
    _fetcher: Fetcher
    _life: Lifecycle

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the log start offset of each partition."""
        return await self._ends("beginning_offsets", partitions, EARLIEST)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the high watermark of each partition; the last stable offset with read_committed."""
        return await self._ends("end_offsets", partitions, LATEST)

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        """Return the offset of the first record not older than each timestamp (ms); None if there is no such record."""
        self._life.check_here(or_stopping=True)
        given = by_partition("timestamps", "1700000000000", timestamps)
        wanted = {partition: whole_number("a timestamp", at) for partition, at in given.items()}
        found = await self._fetcher.list_offsets(wanted)
        return {partition: None if offset < 0 else offset for partition, (offset, _) in found.items()}

    async def partitions_for(self, topic: str) -> list[int]:
        """Return the partitions of a topic; empty if there is no such topic."""
        self._life.check_here(or_stopping=True)
        await self._cluster.refresh([topic_name(topic)])
        info = self._cluster.metadata.topics.get(topic)
        return [] if info is None else list(info.partitions)

    async def transaction_outcomes(
        self, stretches: Mapping[TopicPartition, tuple[int, int]], *, bytes_max: int = 16 * 1024 * 1024
    ) -> dict[TopicPartition, list[TransactionOutcome]]:
        """Return the outcomes of the transactions that have written into each stretch.

        A stretch reaches from its first offset to before its second. An outcome is committed, aborted or open; in a
        cluster of Ottla it includes the commit index.

            outcomes = await consumer.transaction_outcomes({TopicPartition("payments", 0): (0, 100)})

        Reads the stretches, and continues until each transaction in them has its marker, up to the high watermark. It
        stops after about `bytes_max` bytes. Outcomes unknown by then are left out, as are records outside transactions.
        Raises KafkaError: OFFSET_OUT_OF_RANGE for offsets that no longer exist, among others.
        """
        self._life.check_here()
        given = by_partition("stretches", "(0, 100)", stretches)
        wanted = {
            partition: (whole_number("an offset", begin), whole_number("an offset", end))
            for partition, (begin, end) in given.items()
        }
        return await read_outcomes(
            self._cluster, self._fetch_options, wanted, whole_number("bytes_max", bytes_max)
        )

    # inside

    async def _ends(
        self, call: str, partitions: Iterable[TopicPartition], which: int
    ) -> dict[TopicPartition, int]:
        self._life.check_here(or_stopping=True)
        found = await self._fetcher.list_offsets(dict.fromkeys(topic_partitions(call, partitions), which))
        return {partition: offset for partition, (offset, _) in found.items()}

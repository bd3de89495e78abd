"""A reader of whole transactions: it requests cuts, fetches up to them, and passes the batches to the assembler.

It needs a cluster of Ottla, since FindCut and ListCutOffsets are APIs of Ottla alone.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.cuts import FindCutRequest, ListCutOffsetsRequest
from ...protocol.messages.list_offsets import EARLIEST, LATEST
from ...protocol.records.record_batch import BatchHeader
from ..backoff import Backoff
from ..connections.cluster import Cluster
from ..consuming.assigned import FetchOptions
from ..consuming.fetcher import Fetcher
from ..failures import ClientClosed, ClientError, ConnectionLost, RequestTimedOut
from ..producing.leaders import LEADER_MOVED
from ..records import TopicPartition
from .cuts import cut_offsets, cut_topics
from .whole_transactions import NOTHING, Assembler, CommittedTransaction, NewAssembly

LANE = "cuts"
BETWEEN_CUTS_S = 0.004
IDLE_MAX_MS = 100
"""Time in ms between requests for a new cut, at most, while there is nothing to read."""


@dataclass(frozen=True, slots=True)
class ReaderOptions:
    """The options of a reader of whole transactions; `Consumer.transactions` documents the meaning of each."""

    after: int | None
    buffer_bytes_max: int
    passing_over: Collection[tuple[TopicPartition, int]] = ()
    cuts: bool = False


class TransactionReader:
    """A reader of the whole transactions in some partitions, for as long as it is iterated over."""

    def __init__(
        self,
        cluster: Cluster,
        fetching: FetchOptions,
        partitions: Iterable[TopicPartition],
        options: ReaderOptions,
        assembly: NewAssembly,
    ) -> None:
        self._cluster = cluster
        self._partitions = list(partitions)
        self._options = options
        self._assembly = assembly
        self._timeout_s = fetching.request_timeout_ms / 1000
        self._retry_backoff_max_ms = fetching.retry_backoff_max_ms
        self._begins_at_end = options.after is None and fetching.reset_timestamp == LATEST
        # Open transactions are read, too, and a deleted offset must not be skipped silently.
        self._fetcher = Fetcher(
            cluster, replace(fetching, read_committed=False, reset_timestamp=None), "transactions"
        )
        self._stable = Fetcher(cluster, replace(fetching, read_committed=True))
        self._stopped = False
        self._batches: dict[TopicPartition, deque[tuple[BatchHeader, memoryview]]] = {
            partition: deque() for partition in self._partitions
        }

    async def transactions(self) -> AsyncGenerator[CommittedTransaction, None]:
        """Yield committed transactions without end. Raises KafkaError."""
        idle = Backoff(IDLE_MAX_MS)
        assembler = await self._begin()
        try:
            while True:
                assembler.set_cut(*await self._next_cut())
                for done in assembler.ready():
                    self._go_on()
                    yield done
                while unread := assembler.unread():
                    idle.reset()
                    partition = next((partition for partition in unread if self._has_batch(partition)), None)
                    self._go_on()
                    if partition is None:
                        self._fetcher.raise_failure()
                        await self._fetcher.wait(self._timeout_s)
                        continue
                    plain = [
                        record
                        for header, batch in self._take(assembler, partition)
                        for record in assembler.add(partition, header, batch)
                    ]
                    if plain:
                        yield CommittedTransaction(None, {partition: plain})
                    for done in assembler.ready():
                        self._go_on()
                        yield done
                self._go_on()
                if self._options.cuts:
                    yield CommittedTransaction(assembler.cut, {})
                await asyncio.sleep(max(idle.next_s(), BETWEEN_CUTS_S))
        finally:
            assembler.stop()
            await self._fetcher.stop()

    async def stop(self) -> None:
        """Stop fetching the transactions; further iteration raises ClientClosed."""
        self._stopped = True
        self._fetcher.wake_waiter()
        await self._fetcher.stop()

    def _go_on(self) -> None:
        if self._stopped:
            raise ClientClosed("the consumer was stopped")

    # ------------------------------------------------------------ where to begin

    async def _begin(self) -> Assembler:
        """Return an assembler that begins at the log starts; or at the log ends, such that the first transaction
        yielded is whole."""
        # This comes first, so that metadata of its topics is refreshed while they are read.
        self._fetcher.assign(self._partitions)
        which = LATEST if self._begins_at_end else EARLIEST
        found = await self._stable.list_offsets(dict.fromkeys(self._partitions, which))
        starts = {partition: offset for partition, (offset, _) in found.items()}
        after = NOTHING if self._options.after is None else self._options.after
        plain_from: Mapping[TopicPartition, int] = {}
        if self._begins_at_end:
            after, plain_from = await self._cut_beyond(starts)
        options = self._options
        assembler = Assembler(starts, after, options.buffer_bytes_max, self._assembly, options.passing_over)
        assembler.plain_from(plain_from)
        for partition, state in self._fetcher.assigned.items():
            state.seek(starts[partition])
        self._fetcher.start()
        return assembler

    async def _cut_beyond(
        self, stable: Mapping[TopicPartition, int]
    ) -> tuple[int, Mapping[TopicPartition, int]]:
        """Return a cut with all markers before these last stable offsets. A transaction decided later has no marker
        there, and thus no record either."""
        idle = Backoff(IDLE_MAX_MS)
        while True:
            cut, offsets = await self._next_cut()
            if all(offsets[partition] >= offset for partition, offset in stable.items()):
                return cut, offsets
            await asyncio.sleep(max(idle.next_s(), BETWEEN_CUTS_S))

    # ------------------------------------------------------------ batches

    def _has_batch(self, partition: TopicPartition) -> bool:
        """Return whether a fetched batch is available. Fetched chunks are taken one by one, since each taken chunk lets
        the fetcher continue."""
        batches, state = self._batches[partition], self._fetcher.assigned[partition]
        while not batches and state.buffer:
            batches.extend(state.buffer.pop(0).batches())
            self._fetcher.changed()
        return bool(batches)

    def _take(
        self, assembler: Assembler, partition: TopicPartition
    ) -> Iterable[tuple[BatchHeader, memoryview]]:
        """Yield the fetched batches of a partition that lie below the current cut."""
        batches = self._batches[partition]
        while batches and assembler.takes(partition, batches[0][0]):
            yield batches.popleft()

    # ------------------------------------------------------------ cuts

    async def _next_cut(self) -> tuple[int, dict[TopicPartition, int]]:
        """Return the newest cut, and its offset in each partition. Leader changes are retried up to the request
        timeout."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout_s
        backoff = Backoff(self._retry_backoff_max_ms)
        moved = False
        while True:
            try:
                if moved:
                    await self._cluster.refresh({partition.topic for partition in self._partitions})
                return await self._ask_for_cut()
            except KafkaError as error:
                helps = isinstance(error, (ConnectionLost, RequestTimedOut)) or error.code.retriable
                if not helps or loop.time() > deadline:
                    raise
                moved = error.code in LEADER_MOVED
            await asyncio.sleep(backoff.next_s())

    async def _ask_for_cut(self) -> tuple[int, dict[TopicPartition, int]]:
        topics = cut_topics(self._partitions, self._cluster.metadata.topics)
        found = await self._cluster.ask_any(FindCutRequest(topics=topics))
        if found.error_code:
            raise KafkaError(ErrorCode.of(found.error_code), found.error_message)
        by_leader: defaultdict[int, list[TopicPartition]] = defaultdict(list)
        for partition in self._partitions:
            leader = self._cluster.metadata.leader(*partition)
            if leader is None:
                raise KafkaError(
                    ErrorCode.LEADER_NOT_AVAILABLE,
                    f"{partition.topic}-{partition.partition} has no leader now",
                )
            by_leader[leader].append(partition)
        offsets: dict[TopicPartition, int] = {}
        for answer in await asyncio.gather(
            *(
                self._ask_leader(leader, some, found.cut, found.metadata_offset)
                for leader, some in by_leader.items()
            )
        ):
            offsets |= answer
        return found.cut, offsets

    async def _ask_leader(
        self, leader: int, partitions: list[TopicPartition], cut: int, metadata_offset: int
    ) -> dict[TopicPartition, int]:
        known = {partition.topic: self._cluster.metadata.topics[partition.topic] for partition in partitions}
        request = ListCutOffsetsRequest(
            cut=cut, metadata_offset=metadata_offset, topics=cut_topics(partitions, known)
        )
        offsets: dict[TopicPartition, int] = {}
        for partition, said in cut_offsets(
            await self._cluster.ask(leader, request, lane=LANE), known
        ).items():
            if isinstance(said, KafkaError):
                raise said
            offsets[partition] = said.offset
        if missing := [partition for partition in partitions if partition not in offsets]:
            where = f"{missing[0].topic}-{missing[0].partition}"
            raise ClientError(f"broker {leader} left {where} out of its answer")
        return offsets

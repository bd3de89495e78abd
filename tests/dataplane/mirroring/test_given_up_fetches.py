"""A source may wait for records before it answers a fetch. A copy that is added meanwhile does not wait for that."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

from ottla.dataplane.mirroring.copies import Copy
from ottla.dataplane.mirroring.fetching import LANES, WAIT_MAX_MS, SourceFetcher
from ottla.dataplane.replication.throttle import Throttle
from ottla.protocol.cluster.cluster_image import ClusterImage
from ottla.protocol.cluster.mirror_table import Mirror, MirrorPhase
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from tests.dataplane.mirroring.test_bandwidth import Led

SOURCE_BROKER = 3
DEADLINE_S = 10.0


class WaitingSource:
    """A source without records, which answers a waiting fetch when the test decides."""

    def __init__(self) -> None:
        self.fetches: list[tuple[str, frozenset[int]]] = []
        """Lane and partitions of each waiting fetch."""
        self.waiting: list[asyncio.Future[None]] = []

    async def ask(self, broker_id: int, message: FetchRequest, *, lane: str, **_: Any) -> FetchResponse:
        indexes = [part.partition for topic in message.topics for part in topic.partitions]
        if message.max_wait_ms == WAIT_MAX_MS:
            self.fetches.append((lane, frozenset(indexes)))
            answered = asyncio.get_running_loop().create_future()
            self.waiting.append(answered)
            await answered
        parts = [PartitionData(partition_index=index, high_watermark=0, records=b"") for index in indexes]
        return FetchResponse(responses=[FetchableTopicResponse(topic_id=b"s" * 16, partitions=parts)])


class Fetching:
    def __init__(self) -> None:
        self.source = WaitingSource()
        self.copies = [self.copy(0)]
        self.fetcher = SourceFetcher(
            SOURCE_BROKER,
            Mirror("m", "there", "there:9092", ".*", "", -2, MirrorPhase.ACTIVE),
            cast(Any, self.source),
            ClusterImage,
            lambda _broker: self.copies,
            self._nothing,
            Throttle(asyncio.get_running_loop().time),
            lambda _size: None,
            lambda: None,
            self._nothing,
        )

    async def _nothing(self, *_: Sequence[Any]) -> None:
        return

    @staticmethod
    def copy(index: int) -> Copy:
        copy = Copy(cast(Any, Led(index)), 1, b"s" * 16, SOURCE_BROKER, 3, 3)
        copy.source_high_watermark = 0
        return copy

    async def asked(self, count: int) -> None:
        """Return once `count` fetches have waited."""
        async with asyncio.timeout(DEADLINE_S):
            while len(self.source.fetches) < count:
                await asyncio.sleep(0)


@asynccontextmanager
async def fetching() -> AsyncIterator[Fetching]:
    fetching_source = Fetching()
    try:
        yield fetching_source
    finally:
        fetching_source.fetcher.close()


async def test_a_new_copy_is_asked_for_while_the_source_waits_with_another() -> None:
    async with fetching() as fetch:
        await fetch.asked(1)
        fetch.copies.append(fetch.copy(1))
        fetch.fetcher.wake()
        await fetch.asked(2)
        assert fetch.source.fetches == [(LANES[0], {0}), (LANES[1], {0, 1})]
        assert fetch.source.waiting[0].cancelled()


async def test_news_that_are_of_no_copy_leave_a_fetch_alone() -> None:
    async with fetching() as fetch:
        await fetch.asked(1)
        stopped = fetch.copy(1)
        stopped.retry_at(asyncio.get_running_loop().time() + 60, "not now")
        fetch.copies.append(stopped)
        fetch.fetcher.wake()
        for _ in range(20):
            await asyncio.sleep(0)
        assert not fetch.source.waiting[0].done()
        fetch.source.waiting[0].set_result(None)


async def test_who_is_closed_in_the_turn_in_which_a_fetch_is_given_up_fetches_no_more() -> None:
    async with fetching() as fetch:
        await fetch.asked(1)
        fetch.copies.append(fetch.copy(1))
        fetch.fetcher.wake()
        fetch.fetcher.close()
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(fetch.source.fetches) == 1

"""Partitions that brokers refuse, and fetches that fail whole: other reads meanwhile, and the times of retries."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from ottla.client.backoff import Backoff
from ottla.client.consuming.fetcher import Fetcher
from ottla.client.consuming.inbox import Inbox
from ottla.client.failures import ClientError
from ottla.client.records import TopicPartition
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from ottla.protocol.messages.list_offsets import (
    EARLIEST,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.protocol.records.record import encode_batch
from ottla.protocol.records.record_batch import parse_header, patch_place
from tests.client.test_fetcher import MANY, OPTIONS, LosingCluster


class DenyingCluster(LosingCluster):
    """A cluster whose broker 1 refuses the first partition, before the others in its answer.

    Its requests are counted.
    """

    def __init__(self) -> None:
        super().__init__()
        self.times = 0

    async def connection(self, broker_id: int, lane: str = "") -> Any:
        return Denying(self)

    async def refresh(self, topics: Iterable[str] | None = None) -> None:
        pass

    async def ask(self, broker_id: int, message: Any, **_: Any) -> Any:
        assert isinstance(message, ListOffsetsRequest)
        self.times += 1
        await asyncio.sleep(0)
        answers = [
            ListOffsetsPartitionResponse(
                partition_index=partition.partition_index,
                offset=0,
                error_code=0 if partition.partition_index else ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            )
            for partition in message.topics[0].partitions
        ]
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="moved", partitions=answers)])


class Denying:
    """A connection to a broker that has one record in each partition."""

    def __init__(self, cluster: DenyingCluster) -> None:
        self._cluster = cluster

    def version_for(self, _request: object, at_most: int) -> int:
        return at_most

    async def request(self, message: FetchRequest, **_: Any) -> FetchResponse:
        await asyncio.sleep(0)
        answers = [await self._answer(partition) for partition in message.topics[0].partitions]
        return FetchResponse(responses=[FetchableTopicResponse(topic="moved", partitions=answers)])

    async def _answer(self, partition: FetchPartition) -> PartitionData:
        answer = PartitionData(partition_index=partition.partition, high_watermark=1)
        if partition.partition == 0:
            answer.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif partition.fetch_offset == 0:
            answer.records = encode_batch([(None, b"the only one", 0)])
        else:
            await asyncio.Event().wait()
        return answer


@pytest.mark.parametrize("known_position", [True, False])
async def test_a_partition_that_is_refused_keeps_no_other_from_being_read(known_position: bool) -> None:
    """The other partitions in the answer were dropped each time, and during position lookups nothing was fetched at
    all. The broker got the request again at once, some thousand times a second.
    """
    cluster = DenyingCluster()
    fetcher = Fetcher(cluster, replace(OPTIONS, retry_backoff_max_ms=3_600_000))
    inbox = Inbox(fetcher, None)
    fetcher.assign(MANY[:2])
    inbox.reassigned()
    for partition in MANY[:2]:
        if known_position:
            fetcher.assigned[partition].seek(0)
        else:
            fetcher.assigned[partition].look_up(EARLIEST)
    fetcher.start()
    try:
        async with asyncio.timeout(25):
            while not (taken := inbox.take(set(), 9)):
                await asyncio.sleep(0)
        assert [record.value for record in taken[MANY[1]]] == [b"the only one"]
        with pytest.raises(KafkaError, match="moved-0"):
            fetcher.raise_failure()
    finally:
        await fetcher.stop()


class Busy(Denying):
    """A connection to a broker that always has records in all partitions but the first."""

    _cluster: BusyCluster

    async def request(self, message: FetchRequest, **_: Any) -> FetchResponse:
        self._cluster.fetches += 1
        return await super().request(message)

    async def _answer(self, partition: FetchPartition) -> PartitionData:
        answer = PartitionData(partition_index=partition.partition, high_watermark=10_000)
        if partition.partition == 0:
            self._cluster.times += 1
            answer.error_code = self._cluster.refusal
        else:
            batch = bytearray(encode_batch([(None, b"more", 0)]))
            patch_place(memoryview(batch), parse_header(batch), partition.fetch_offset, 0)
            answer.records = bytes(batch)
        return answer


class BusyCluster(DenyingCluster):
    """A cluster that counts requests about the first partition (`times`), all fetches, and requests about topics."""

    def __init__(self) -> None:
        super().__init__()
        self.refusal = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        self.fetches = self.refreshed = 0

    async def connection(self, broker_id: int, lane: str = "") -> Any:
        return Busy(self)

    async def refresh(self, topics: Iterable[str] | None = None) -> None:
        self.refreshed += 1


async def _busy_for(cluster: BusyCluster, fetches: int, *, known_position: bool) -> None:
    """Read until there were `fetches` fetches; an unknown position of the first partition is looked up."""
    fetcher = Fetcher(cluster, replace(OPTIONS, retry_backoff_max_ms=3_600_000))
    inbox = Inbox(fetcher, None)
    fetcher.assign(MANY[:2])
    inbox.reassigned()
    for partition in MANY[:2]:
        if known_position or partition.partition:
            fetcher.assigned[partition].seek(0)
        else:
            fetcher.assigned[partition].look_up(EARLIEST)
    fetcher.start()
    try:
        async with asyncio.timeout(25):
            while cluster.fetches < fetches:
                inbox.take(set(), 9)
                await asyncio.sleep(0)
    finally:
        await fetcher.stop()


@pytest.fixture
def waits_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Backoff, "next_s", lambda *_: 3_600.0)


@pytest.mark.usefixtures("waits_without_end")
@pytest.mark.parametrize("known_position", [True, False])
async def test_a_broker_that_refuses_is_asked_again_after_a_wait(known_position: bool) -> None:
    """The broker used to be asked whenever another partition had records: each fetch led to a request about topics, or
    for the position.
    """
    cluster = BusyCluster()
    await _busy_for(cluster, 200, known_position=known_position)
    assert cluster.times == 1
    assert cluster.refreshed == (0 if known_position else 1)


@pytest.mark.usefixtures("waits_without_end")
async def test_who_leads_is_asked_again_after_a_wait() -> None:
    """Each fetch of a partition with a leader led to a request about the leaderless one."""
    cluster = BusyCluster()
    cluster.refusal = ErrorCode.LEADER_NOT_AVAILABLE
    await _busy_for(cluster, 200, known_position=True)
    assert cluster.times == 1
    assert cluster.refreshed == 1


class FailingCluster(DenyingCluster):
    """A cluster whose broker 1 fails whole fetches, or connections. `times` counts both."""

    def __init__(self, *, connects: bool) -> None:
        super().__init__()
        self._connects = connects

    async def connection(self, broker_id: int, lane: str = "") -> Any:
        await asyncio.sleep(0)
        if not self._connects:
            self.times += 1
            raise ClientError("broker 1 refused to tell its versions")
        return Failing(self)


class Failing(Denying):
    async def request(self, message: FetchRequest, **_: Any) -> FetchResponse:
        self._cluster.times += 1
        await asyncio.sleep(0)
        return FetchResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)


@pytest.mark.parametrize("connects", [True, False])
async def test_a_broker_that_fails_whole_fetches_is_asked_again_after_a_wait(connects: bool) -> None:
    """The broker was asked again at once, without end."""
    cluster = FailingCluster(connects=connects)
    fetcher = Fetcher(cluster, replace(OPTIONS, retry_backoff_max_ms=3_600_000))
    fetcher.assign(MANY[:2])
    for partition in MANY[:2]:
        fetcher.assigned[partition].seek(0)
    fetcher.start()
    try:
        await asyncio.wait_for(fetcher.wait(None), 25)
        with pytest.raises(KafkaError, match="fetch failed" if connects else "refused to tell"):
            fetcher.raise_failure()
        for _ in range(200):
            await asyncio.sleep(0)
        assert cluster.times == 1
    finally:
        await fetcher.stop()


class SilentCluster(DenyingCluster):
    """A cluster that fails and counts all requests about topics."""

    async def refresh(self, topics: Iterable[str] | None = None) -> None:
        self.times += 1
        await asyncio.sleep(0)
        raise ClientError("broker 1 refused to tell its versions")


@pytest.mark.usefixtures("waits_without_end")
async def test_a_question_about_topics_that_fails_is_repeated_after_a_wait() -> None:
    """The request was repeated at once, without end, or lost."""
    cluster = SilentCluster()
    fetcher = Fetcher(cluster, OPTIONS)
    fetcher.assign([TopicPartition("unknown", 0)])
    fetcher.assigned[TopicPartition("unknown", 0)].seek(0)
    fetcher.start()
    try:
        await asyncio.wait_for(fetcher.wait(None), 25)
        with pytest.raises(ClientError, match="refused to tell"):
            fetcher.raise_failure()
        for _ in range(200):
            await asyncio.sleep(0)
        assert cluster.times == 1
    finally:
        await fetcher.stop()


@pytest.mark.usefixtures("waits_without_end")
async def test_who_leads_partitions_of_another_topic_is_asked_at_once() -> None:
    """This holds although a wait precedes the next request about a leaderless partition."""
    cluster = BusyCluster()
    cluster.refusal = ErrorCode.LEADER_NOT_AVAILABLE
    fetcher = Fetcher(cluster, OPTIONS)
    fetcher.assign(MANY[:1])
    fetcher.assigned[MANY[0]].seek(0)
    fetcher.start()
    try:
        async with asyncio.timeout(25):
            while cluster.refreshed < 1:
                await asyncio.sleep(0)
            fetcher.assign([MANY[0], TopicPartition("new", 0)])
            fetcher.assigned[TopicPartition("new", 0)].seek(0)
            fetcher.changed()
            while cluster.refreshed < 2:
                await asyncio.sleep(0)
    finally:
        await fetcher.stop()


async def test_a_place_that_is_sought_after_a_refusal_is_read_at_once() -> None:
    cluster = BusyCluster()
    fetcher = Fetcher(cluster, replace(OPTIONS, retry_backoff_max_ms=3_600_000))
    fetcher.assign(MANY[:1])
    state = fetcher.assigned[MANY[0]]
    state.seek(0)
    fetcher.start()
    try:
        async with asyncio.timeout(25):
            while not state.refused:
                await asyncio.sleep(0)
            state.seek(7)
            fetcher.changed()
            while cluster.times < 2:
                await asyncio.sleep(0)
    finally:
        await fetcher.stop()

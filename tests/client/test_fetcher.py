"""The fetcher's requests and their recipients, when leaders move just before a request."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from ottla.client.backoff import Backoff
from ottla.client.connections.cluster import Cluster
from ottla.client.consuming.assigned import FetchOptions
from ottla.client.consuming.fetcher import Fetcher
from ottla.client.consuming.inbox import Inbox
from ottla.client.failures import ConnectionLost
from ottla.client.records import TopicPartition
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)
from ottla.protocol.messages.list_offsets import EARLIEST
from ottla.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.records.record import encode_batch

PLACE = TopicPartition("orders", 0)
OPTIONS = FetchOptions(
    read_committed=False,
    reset_timestamp=EARLIEST,
    max_wait_ms=10,
    min_bytes=1,
    max_bytes=1000,
    max_partition_bytes=1000,
    request_timeout_ms=1000,
    retry_backoff_max_ms=10,
    check_crcs=True,
)


def known() -> MetadataResponse:
    partition = MetadataResponsePartition(partition_index=0, leader_id=1, leader_epoch=4)
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=number, host="localhost", port=number) for number in (1, 2)],
        topics=[MetadataResponseTopic(name=PLACE.topic, topic_id=bytes(16), partitions=[partition])],
    )


class Asked:
    """A connection that notes its requests, and never answers."""

    def __init__(self, cluster: MovingCluster, broker_id: int) -> None:
        self._cluster = cluster
        self._broker_id = broker_id

    def version_for(self, _request: object, at_most: int) -> int:
        return at_most

    def _note(self, message: FetchRequest) -> None:
        epoch = message.topics[0].partitions[0].current_leader_epoch
        self._cluster.asked.put_nowait((self._broker_id, epoch))

    async def request(self, message: FetchRequest, **_: Any) -> FetchResponse:
        self._note(message)
        await asyncio.Event().wait()
        raise AssertionError


class MovingCluster(Cluster):
    """A cluster in which broker 2 takes over the partition while a connection to broker 1 is made."""

    def __init__(self) -> None:
        super().__init__("localhost:1")
        self.metadata.update(known())
        self.asked: asyncio.Queue[tuple[int, int]] = asyncio.Queue()

    async def connection(self, broker_id: int, lane: str = "") -> Any:
        await asyncio.sleep(0)
        self.metadata.learn_leader(*PLACE, 2, 5)
        return Asked(self, broker_id)


async def test_a_broker_that_leads_no_more_is_not_asked_in_the_epoch_of_its_successor() -> None:
    """The former leader may follow in that epoch, with fewer records than the leader, and would answer that the offset
    is out of range.
    """
    cluster = MovingCluster()
    fetcher = Fetcher(cluster, OPTIONS)
    fetcher.assign([PLACE])
    fetcher.assigned[PLACE].seek(22)
    fetcher.start()
    try:
        assert await asyncio.wait_for(cluster.asked.get(), 25) == (2, 5)
        assert cluster.asked.empty()
    finally:
        await fetcher.stop()


class Near:
    """A connection that answers at once; leader 1 sends consumers with a rack to 2, which then holds no replica."""

    def __init__(self, broker_id: int, asked: list[tuple[int, str]]) -> None:
        self._broker_id = broker_id
        self._asked = asked

    def version_for(self, _request: object, at_most: int) -> int:
        return at_most

    async def request(self, message: FetchRequest, **_: Any) -> FetchResponse:
        self._asked.append((self._broker_id, message.rack_id))
        answer = PartitionData(partition_index=0, high_watermark=9)
        if self._broker_id == 2 and len(self._asked) > 3:
            answer.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        elif self._broker_id == 1 and message.rack_id:
            answer.preferred_read_replica = 2
        await asyncio.sleep(0.001)
        return FetchResponse(responses=[FetchableTopicResponse(topic=PLACE.topic, partitions=[answer])])


class NearCluster(Cluster):
    def __init__(self) -> None:
        super().__init__("localhost:1")
        self.metadata.update(known())
        self.asked: list[tuple[int, str]] = []

    async def connection(self, broker_id: int, lane: str = "") -> Any:
        return Near(broker_id, self.asked)


async def test_a_near_replica_that_fails_is_left_for_the_leader_where_reading_goes_on() -> None:
    """A follower's missing records say nothing about the partition, so its answer resets no position; a request with a
    rack would be sent back there and get nothing.
    """
    cluster = NearCluster()
    fetcher = Fetcher(cluster, replace(OPTIONS, rack="r"))
    fetcher.assign([PLACE])
    fetcher.assigned[PLACE].seek(22)
    fetcher.start()
    try:
        async with asyncio.timeout(25):
            while len(cluster.asked) < 6:
                await asyncio.sleep(0.001)
        assert cluster.asked[:6] == [(1, "r"), (2, "r"), (2, "r"), (2, "r"), (1, ""), (1, "")]
        assert fetcher.assigned[PLACE].position == 22
    finally:
        await fetcher.stop()


class Shortened:
    """A connection to a leader that has one record and answers that any later offset is out of range."""

    def __init__(self, asked: list[int]) -> None:
        self._asked = asked

    def version_for(self, _request: object, at_most: int) -> int:
        return at_most

    async def request(self, message: FetchRequest, **_: Any) -> FetchResponse:
        offset = message.topics[0].partitions[0].fetch_offset
        self._asked.append(offset)
        answer = PartitionData(partition_index=0, high_watermark=1)
        if offset == 0:
            answer.records = encode_batch([(None, b"the only one", 0)])
        else:
            answer.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        return FetchResponse(responses=[FetchableTopicResponse(topic=PLACE.topic, partitions=[answer])])


class ShortenedCluster(NearCluster):
    def __init__(self) -> None:
        super().__init__()
        self.offsets: list[int] = []

    async def connection(self, broker_id: int, lane: str = "") -> Any:
        return Shortened(self.offsets)


async def test_what_lies_out_of_range_is_not_asked_for_again_before_the_buffer_was_read() -> None:
    cluster = ShortenedCluster()
    fetcher = Fetcher(cluster, OPTIONS)
    inbox = Inbox(fetcher, None)
    fetcher.assign([PLACE])
    inbox.reassigned()
    fetcher.assigned[PLACE].seek(0)
    fetcher.start()
    try:
        async with asyncio.timeout(25):
            while cluster.offsets != [0, 1]:
                await asyncio.sleep(0)
        for _ in range(200):
            await asyncio.sleep(0)
        assert cluster.offsets == [0, 1]
        assert [record.value for record in inbox.take(set(), 9)[PLACE]] == [b"the only one"]
        inbox.take(set(), 9)
        async with asyncio.timeout(25):
            while fetcher.assigned[PLACE].reset_to != EARLIEST:
                await asyncio.sleep(0)
    finally:
        await fetcher.stop()


class StoppedCluster(NearCluster):
    """A cluster in which the fetcher is stopped at the moment of a failure."""

    fetcher: Fetcher
    stopping: asyncio.Task[None] | None = None

    async def connection(self, broker_id: int, lane: str = "") -> Any:
        self.stopping = self.stopping or asyncio.ensure_future(self.fetcher.stop())
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "refused")


async def test_a_fetcher_that_fails_as_it_is_stopped_does_not_begin_anew() -> None:
    cluster = StoppedCluster()
    cluster.fetcher = Fetcher(cluster, OPTIONS)
    cluster.fetcher.assign([PLACE])
    cluster.fetcher.assigned[PLACE].look_up(EARLIEST)
    cluster.fetcher.start()
    async with asyncio.timeout(25):
        while cluster.stopping is None:
            await asyncio.sleep(0)
        await cluster.stopping
    assert asyncio.all_tasks() == {asyncio.current_task()}


MANY = [TopicPartition(name, index) for name in ("moved", "there") for index in range(200)]


def many(leaders: dict[str, tuple[int, int]]) -> MetadataResponse:
    return MetadataResponse(
        brokers=known().brokers,
        topics=[
            MetadataResponseTopic(
                name=name,
                topic_id=bytes(16),
                partitions=[
                    MetadataResponsePartition(partition_index=index, leader_id=leader, leader_epoch=epoch)
                    for index in range(200)
                ],
            )
            for name, (leader, epoch) in leaders.items()
        ],
    )


class LosingCluster(Cluster):
    """A cluster whose broker 1 dies during requests about two hundred partitions of a topic; broker 2 leads the other
    topic.
    """

    def __init__(self) -> None:
        super().__init__("localhost:1")
        self.metadata.update(many({"moved": (1, 4), "there": (2, 4)}))
        self.refreshed: list[set[str]] = []
        self.asked: asyncio.Queue[FetchRequest] = asyncio.Queue()

    async def connection(self, broker_id: int, lane: str = "") -> Any:
        return Noting(self.asked if broker_id == 2 else None)

    async def refresh(self, topics: Iterable[str] | None = None) -> None:
        self.refreshed.append(set(topics or ()))
        self.metadata.update(many({"moved": (2, 5)}))


class Noting:
    """A connection that notes its requests, or one to a killed broker."""

    def __init__(self, asked: asyncio.Queue[FetchRequest] | None) -> None:
        self._asked = asked

    def version_for(self, _request: object, at_most: int) -> int:
        return at_most

    async def request(self, message: FetchRequest, **_: Any) -> FetchResponse:
        await asyncio.sleep(0.001)
        if self._asked is None:
            raise ConnectionLost("broker 1 was killed")
        self._asked.put_nowait(message)
        return FetchResponse()


async def test_when_a_broker_of_many_partitions_dies_its_topics_are_asked_about_once() -> None:
    """Each partition prolonged the wait before the next request: after some fifty it was at its maximum."""
    cluster = LosingCluster()
    fetcher = Fetcher(cluster, replace(OPTIONS, retry_backoff_max_ms=3_600_000))
    fetcher.assign(MANY)
    for partition in MANY:
        fetcher.assigned[partition].seek(22)
    fetcher.start()
    try:
        async with asyncio.timeout(25):
            while {topic.topic for topic in (await cluster.asked.get()).topics} != {"moved", "there"}:
                pass
        assert cluster.refreshed == [{"moved"}]
    finally:
        await fetcher.stop()


class Moved(Asked):
    """A connection to a broker that no longer leads, and names the leader 2, which never answers."""

    async def request(self, message: FetchRequest, **_: Any) -> FetchResponse:
        self._note(message)
        if self._broker_id == 2:
            await asyncio.Event().wait()
        answer = PartitionData(partition_index=0, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        answer.current_leader = LeaderIdAndEpoch(leader_id=2, leader_epoch=5)
        return FetchResponse(responses=[FetchableTopicResponse(topic=PLACE.topic, partitions=[answer])])


class NamingCluster(MovingCluster):
    """A cluster whose leader is known from broker 1's answer."""

    def __init__(self) -> None:
        super().__init__()
        self.refreshed = 0

    async def connection(self, broker_id: int, lane: str = "") -> Any:
        return Moved(self, broker_id)

    async def refresh(self, topics: Iterable[str] | None = None) -> None:
        self.refreshed += 1


async def test_a_leader_that_a_refusal_names_is_read_from_and_nobody_is_asked() -> None:
    cluster = NamingCluster()
    fetcher = Fetcher(cluster, OPTIONS)
    fetcher.assign([PLACE])
    fetcher.assigned[PLACE].seek(22)
    fetcher.start()
    try:
        async with asyncio.timeout(25):
            assert [await cluster.asked.get() for _ in range(2)] == [(1, 4), (2, 5)]
        assert cluster.refreshed == 0
    finally:
        await fetcher.stop()


async def test_leaders_are_asked_about_though_the_one_that_failed_may_be_tried_again_already(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Recording the failure of thousands of partitions takes longer than the wait.

    So a dead broker was retried repeatedly, and no broker was asked for the new leaders.
    """
    monkeypatch.setattr(Backoff, "next_s", lambda *_: 0.0)
    cluster = LosingCluster()
    fetcher = Fetcher(cluster, OPTIONS)
    fetcher.assign(MANY)
    for partition in MANY:
        fetcher.assigned[partition].seek(22)
    fetcher.start()
    try:
        async with asyncio.timeout(25):
            while {topic.topic for topic in (await cluster.asked.get()).topics} != {"moved", "there"}:
                pass
        assert cluster.refreshed[0] == {"moved"}
    finally:
        await fetcher.stop()

"""Questions about topics: one at a time, and those of many together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from ottla.client.connections.cluster import Cluster
from ottla.client.connections.metadata import ClusterMetadata
from ottla.client.connections.refreshing import Refreshing
from ottla.client.failures import NoBrokerReachable
from ottla.protocol.codec import encode
from ottla.protocol.messages.headers import RequestHeader, response_header
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.client.test_connection import framed, peer


class Questions:
    """Notes what is asked; each is answered when the test says so."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.answers: list[asyncio.Future[None]] = []
        self.refreshing = Refreshing(self.ask)

    async def ask(self, topics: Sequence[str]) -> None:
        self.asked.append(list(topics))
        self.answers.append(asyncio.get_running_loop().create_future())
        await self.answers[-1]

    def wants(self, *topics: str) -> asyncio.Task[None]:
        return asyncio.ensure_future(self.refreshing.of(set(topics)))

    async def asked_times(self, times: int) -> None:
        async with asyncio.timeout(20):
            while len(self.asked) < times:
                await asyncio.sleep(0)


async def test_what_many_want_at_once_is_one_question() -> None:
    questions = Questions()
    waiting = [questions.wants(f"t{number}") for number in range(100)]
    await questions.asked_times(1)
    questions.answers[0].set_result(None)
    await asyncio.gather(*waiting)
    assert questions.asked == [sorted(f"t{number}" for number in range(100))]


async def test_who_wants_what_is_being_asked_waits_for_that_answer() -> None:
    questions = Questions()
    first = questions.wants("a", "b")
    await questions.asked_times(1)
    second = questions.wants("b")
    await asyncio.sleep(0)
    questions.answers[0].set_result(None)
    await asyncio.gather(first, second)
    assert questions.asked == [["a", "b"]]


async def test_what_is_wanted_meanwhile_is_asked_together_when_the_answer_is_there() -> None:
    questions = Questions()
    first = questions.wants("a")
    await questions.asked_times(1)
    others = [questions.wants("b"), questions.wants("c", "a")]
    for _ in range(5):
        await asyncio.sleep(0)
    assert questions.asked == [["a"]]
    questions.answers[0].set_result(None)
    await questions.asked_times(2)
    assert first.done()
    assert not any(one.done() for one in others)
    questions.answers[1].set_result(None)
    await asyncio.gather(*others)
    assert questions.asked == [["a"], ["a", "b", "c"]]


async def test_a_failure_is_told_to_those_who_asked_and_the_next_question_is_asked_all_the_same() -> None:
    questions = Questions()
    first = questions.wants("a")
    await questions.asked_times(1)
    second = questions.wants("b")
    await asyncio.sleep(0)
    questions.answers[0].set_exception(NoBrokerReachable("nobody"))
    with pytest.raises(NoBrokerReachable):
        await first
    await questions.asked_times(2)
    questions.answers[1].set_result(None)
    await second
    third = questions.wants("a")
    await questions.asked_times(3)
    questions.answers[2].set_result(None)
    await third


async def test_who_gives_up_takes_nothing_from_the_others() -> None:
    questions = Questions()
    first, second = questions.wants("a"), questions.wants("a")
    await questions.asked_times(1)
    first.cancel()
    await asyncio.sleep(0)
    questions.answers[0].set_result(None)
    await second
    assert questions.asked == [["a"]]


async def test_when_it_is_closed_nobody_waits_any_more() -> None:
    questions = Questions()
    waiting = [questions.wants("a")]
    await questions.asked_times(1)
    waiting.append(questions.wants("b"))
    await asyncio.sleep(0)
    await questions.refreshing.close()
    async with asyncio.timeout(20):
        ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(one, asyncio.CancelledError) for one in ended)


class Asked(Cluster):
    """Notes about which topics somebody is asked."""

    def __init__(self) -> None:
        super().__init__("localhost:1")
        self.asked: list[list[str | None]] = []

    async def ask_metadata(
        self, request: MetadataRequest, into: ClusterMetadata, *, timeout_ms: float | None = None
    ) -> None:
        self.asked.append([topic.name for topic in request.topics or ()])


async def test_a_cluster_is_asked_about_the_topics_in_need_and_not_about_all() -> None:
    cluster = Asked()
    cluster.follow({"a", "b", "c"})
    await cluster.refresh(["b"])
    await cluster.refresh({"d"})
    await cluster.refresh()
    cluster.unfollow({"d"})
    await cluster.refresh()
    assert cluster.asked == [["b"], ["d"], ["a", "b", "c", "d"], ["a", "b", "c"]]


async def test_others_have_turns_while_a_long_answer_is_read() -> None:
    topics = [
        MetadataResponseTopic(
            name=f"t{number}",
            partitions=[MetadataResponsePartition(partition_index=index) for index in range(1_000)],
        )
        for number in range(20)
    ]

    async def serve(writer: asyncio.StreamWriter, header: RequestHeader) -> None:
        head = response_header(header.api_key, header.api_version, header.correlation_id)
        writer.write(framed(head + encode(MetadataResponse(topics=topics), header.api_version)))

    known: list[int] = []

    async def look(cluster: Cluster) -> None:
        while True:
            known.append(len(cluster.metadata.topics))
            await asyncio.sleep(0)

    async with peer(serve) as address, Cluster(f"{address.host}:{address.port}") as cluster:
        cluster.metadata.topics.clear()
        looking = asyncio.ensure_future(look(cluster))
        await cluster.refresh(topic.name for topic in topics if topic.name is not None)
        looking.cancel()
    assert len(cluster.metadata.topics) == 20
    assert len({number for number in known if 0 < number < 20}) >= 3

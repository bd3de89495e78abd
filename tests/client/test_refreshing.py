"""Requests about topics: one at a time, and combined for many callers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from ottla.client.connections.cluster import Cluster
from ottla.client.connections.metadata import ClusterMetadata
from ottla.client.connections.refreshing import Refreshing
from ottla.client.failures import NoBrokerReachable
from ottla.protocol.messages.headers import RequestHeader, response_header
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.wire.codec import encode
from tests.client.test_connection import framed, peer


class Questions:
    """A recorder of requests; the test decides when each is answered."""

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
    assert not any(task.done() for task in others)
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
    assert all(isinstance(exception, asyncio.CancelledError) for exception in ended)


class Asked(Cluster):
    """A cluster that notes the topics in requests, and those whose creation is permitted."""

    def __init__(self, **options: Any) -> None:
        super().__init__("localhost:1", **options)
        self.asked: list[list[str | None]] = []
        self.creating: list[list[str | None]] = []
        self.answered: Callable[[Sequence[str | None]], Awaitable[None]] | None = None

    async def ask_metadata(
        self, request: MetadataRequest, into: ClusterMetadata, *, timeout_ms: float | None = None
    ) -> None:
        names = [topic.name for topic in request.topics or ()]
        self.asked.append(names)
        if request.allow_auto_topic_creation:
            self.creating.append(names)
        if self.answered is not None:
            await self.answered(names)


def known(*names: str | None) -> MetadataResponse:
    partitions = [MetadataResponsePartition(partition_index=0, leader_id=1)]
    return MetadataResponse(
        topics=[MetadataResponseTopic(name=name, partitions=partitions) for name in names]
    )


async def test_a_cluster_is_asked_about_the_topics_in_need_and_not_about_all() -> None:
    cluster = Asked()
    cluster.follow("reader", {"a", "b", "c"})
    await cluster.refresh(["b"])
    await cluster.refresh({"d"})
    await cluster.refresh()
    cluster.follow("reader", {"c"})
    await cluster.refresh()
    cluster.follow("reader", ())
    await cluster.refresh()
    assert cluster.asked == [["b"], ["d"], ["a", "b", "c"], ["c"], []]


async def test_a_topic_is_created_by_its_first_use_and_by_no_refresh() -> None:
    """A deleted topic would otherwise reappear (KAFKA-2948)."""
    cluster = Asked()

    async def answered(names: Sequence[str | None]) -> None:
        cluster.metadata.update(known(*names))

    cluster.answered = answered
    await cluster.partitions_of("a", patience_s=1, backoff_max_ms=1)
    await cluster.partitions_of("a", patience_s=1, backoff_max_ms=1)
    cluster.follow("reader", ["b"])
    await cluster.refresh()
    await cluster.refresh(["a", "b", "c"])
    assert cluster.asked == [["a"], ["a", "b"], ["a", "b", "c"]]
    assert cluster.creating == [["a"]]


async def test_a_topic_that_is_not_used_any_more_is_forgotten() -> None:
    cluster = Asked(metadata_max_idle_ms=20)
    cluster.metadata.update(known("a", "b", "c", "d"))
    cluster.users.append(lambda _since_s: {"b"})
    cluster.follow("reader", ["c"])
    for used in "ab":
        await cluster.partitions_of(used, patience_s=1, backoff_max_ms=1)
    await cluster.refresh(["d"])
    async with asyncio.timeout(25):
        while cluster.metadata.topics.keys() & {"a", "d"}:
            await asyncio.sleep(0.001)
            await cluster.refresh()
    assert cluster.asked[1] == ["a", "b", "c"]
    assert cluster.asked[-1] == ["b", "c"]
    assert set(cluster.metadata.topics) == {"b", "c"}


async def test_of_very_many_topics_some_are_asked_about_at_a_time() -> None:
    """A broker refuses 21,000 at once, and the client stopped learning."""
    cluster = Asked()
    names = {f"t{number}" for number in range(21_001)}
    cluster.follow("reader", names)
    await cluster.refresh()
    assert max(map(len, cluster.asked)) <= 5_000
    assert sorted(name or "" for some in cluster.asked for name in some) == sorted(names)


async def test_a_question_about_a_new_topic_waits_for_a_part_of_very_many_others() -> None:
    cluster = Asked()
    cluster.follow("reader", {f"t{number}" for number in range(21_001)})

    async def answered(_: Sequence[str | None]) -> None:
        await asyncio.sleep(0)

    cluster.answered = answered
    others = asyncio.ensure_future(cluster.refresh())
    while not cluster.asked:
        await asyncio.sleep(0)
    await cluster.refresh(["new"])
    assert not others.done()
    await others
    assert any("new" in some for some in cluster.asked[:4])


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

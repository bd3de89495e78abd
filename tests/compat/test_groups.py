"""Members of a group: each assignor, static members, and members of librdkafka among Ottla's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from ottla import Admin, Consumer, ConsumerRecord, ErrorCode, KafkaError, Producer, RebalanceListener
from ottla import TopicPartition as Partition
from tests.compat.conftest import Topics
from tests.compat.reading import DEADLINE_S, eventually, poll_all

ASSIGNORS = ["range", "roundrobin", "sticky", "cooperative-sticky"]


def member(bootstrap: str, group: str, topic: str, **options: Any) -> Consumer:
    beginnings = {"auto_offset_reset": "earliest", "heartbeat_interval_ms": 100, "session_timeout_ms": 6_000}
    return Consumer(topic, bootstrap_servers=bootstrap, group_id=group, **(beginnings | options))


async def fill(bootstrap: str, topic: str, partitions: int, each: int) -> None:
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(partitions * each):
            await producer.send(topic, b"%d" % number, partition=number % partitions)


def shared(members: list[Consumer], count: int) -> Callable[[], bool]:
    """Return a condition: the members own all partitions, each once, and fairly."""

    def condition() -> bool:
        parts = [consumer.assignment() for consumer in members]
        sizes = sorted(map(len, parts))
        return len(set().union(*parts)) == sum(sizes) == count and sizes[-1] - sizes[0] <= 1

    return condition


async def positions(members: list[Consumer], end: int) -> None:
    """Return once the members are at this offset in all their partitions."""
    async with asyncio.timeout(DEADLINE_S):
        for consumer in members:
            for partition in consumer.assignment():
                while await consumer.position(partition) < end:
                    await asyncio.sleep(0.01)


@asynccontextmanager
async def polling(members: list[Consumer], into: list[ConsumerRecord]) -> AsyncIterator[None]:
    """Poll all the time in the background, as a program does."""

    async def poll() -> None:
        while True:
            await poll_all(list(members), into)
            await asyncio.sleep(0.01)

    task = asyncio.create_task(poll())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


@pytest.mark.parametrize("assignor", ASSIGNORS)
async def test_members_share_and_take_over(
    bootstrap: str, topics: Topics, group: str, admin: Admin, assignor: str
) -> None:
    topic, read = await topics(6), list[ConsumerRecord]()
    await fill(bootstrap, topic, 6, 20)
    options = {"partition_assignment_strategy": (assignor,)}
    members = [member(bootstrap, group, topic, **options) for _ in range(3)]
    async with AsyncExitStack() as stack:
        for consumer in members:
            await stack.enter_async_context(consumer)
        async with polling(members, read):
            await eventually(shared(members, 6), "three members with two partitions each")
            await positions(members, 20)
        (described,) = await admin.describe_groups([group])
        assert (described.state, described.assignor, len(described.members)) == ("Stable", assignor, 3)
        for consumer in members:
            await consumer.commit()
        await members.pop().stop()
        async with polling(members, read):
            await eventually(shared(members, 6), "two members with three partitions each")
    assert set((await admin.committed_offsets(group)).values()) == {20}


async def test_static_members_come_back_to_what_they_had(
    bootstrap: str, topics: Topics, group: str, admin: Admin
) -> None:
    topic = await topics(4)
    names = {"group_instance_id": "a"}, {"group_instance_id": "b"}
    first, second = (
        member(bootstrap, group, topic, session_timeout_ms=30_000, **options) for options in names
    )
    async with first:
        async with second:
            await eventually(shared([first, second], 4), "two partitions each")
            had, generation = second.assignment(), second.group_metadata().generation
        again = member(bootstrap, group, topic, session_timeout_ms=30_000, **names[1])
        async with again:
            await eventually(lambda: again.assignment() == had, "the same partitions as before")
            assert first.group_metadata().generation == generation  # no rebalance was necessary
            (described,) = await admin.describe_groups([group])
            assert sorted(str(group_member.instance_id) for group_member in described.members) == ["a", "b"]


async def test_a_second_member_of_the_same_name_fences_the_first(
    bootstrap: str, topics: Topics, group: str
) -> None:
    topic = await topics()
    async with AsyncExitStack() as stack:
        first = member(bootstrap, group, topic, group_instance_id="a")
        await stack.enter_async_context(first)
        await eventually(lambda: bool(first.assignment()), "a member with a partition")
        second = member(bootstrap, group, topic, group_instance_id="a")
        await stack.enter_async_context(second)
        await eventually(lambda: bool(second.assignment()), "its replacement with the partition")
        async with asyncio.timeout(DEADLINE_S):
            with pytest.raises(KafkaError) as fenced:
                await first.getone()
        assert fenced.value.code is ErrorCode.FENCED_INSTANCE_ID


async def test_cooperative_members_read_on_what_they_keep(bootstrap: str, topics: Topics, group: str) -> None:
    topic = await topics(4)
    revoked: list[set[Partition]] = []

    class Revocations(RebalanceListener):
        def on_partitions_revoked(self, partitions: set[Partition]) -> None:
            revoked.append(partitions)

    options = {"partition_assignment_strategy": ("cooperative-sticky",)}
    first = member(bootstrap, group, topic, **options)
    first.subscribe([topic], listener=Revocations())
    async with first:
        await eventually(lambda: len(first.assignment()) == 4, "all partitions")
        second = member(bootstrap, group, topic, **options)
        async with second:
            await eventually(shared([first, second], 4), "two partitions each")
            assert [len(partitions) for partitions in revoked] == [2]  # the others were never revoked


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "cooperative-sticky"])  # those that it has
async def test_members_of_librdkafka_are_in_the_same_group(
    bootstrap: str, topics: Topics, group: str, assignor: str
) -> None:
    import confluent_kafka

    topic, read, theirs = await topics(4), list[ConsumerRecord](), list[tuple[int, int]]()
    await fill(bootstrap, topic, 4, 25)
    ours = member(bootstrap, group, topic, partition_assignment_strategy=(assignor,))
    other = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "partition.assignment.strategy": assignor,
            "auto.offset.reset": "earliest",
            "heartbeat.interval.ms": 100,
            "session.timeout.ms": 6_000,
        }
    )
    other.subscribe([topic])
    stop, has = False, 0

    def poll() -> None:
        nonlocal has
        while not stop:
            message = other.poll(0.05)
            has = len(other.assignment())
            if message is not None and message.error() is None:
                theirs.append((message.partition(), message.offset()))

    thread = asyncio.create_task(asyncio.to_thread(poll))
    try:
        async with ours, polling([ours], read):
            await eventually(lambda: len(ours.assignment()) == 2 and has == 2, "two partitions each")
            everything = {(partition, offset) for partition in range(4) for offset in range(25)}
            await eventually(
                lambda: {(r.partition, r.offset) for r in read} | set(theirs) == everything, "everything read"
            )
    finally:
        stop = True
        await thread
        await asyncio.to_thread(other.close)

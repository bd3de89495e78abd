"""Consumers with the broker-side assignment protocol (KIP-848), with a real cluster."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, suppress
from typing import Any

import confluent_kafka
import pytest

from ottla import (
    Admin,
    Consumer,
    ExactlyOnce,
    KafkaError,
    NewRecord,
    NewTopic,
    OffsetAndMetadata,
    Producer,
    TopicPartition,
)
from ottla.client.consuming.membership.consumer_group import ConsumerGroupMember
from ottla.protocol.errors import ErrorCode
from ottla.testing import LocalCluster
from tests.client.listeners import KeptEvents

pytestmark = pytest.mark.cluster

SETTINGS = {
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "2000",
    "group.consumer.min.heartbeat.interval.ms": "50",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.max.size": "5",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(settings=SETTINGS) as running:
        yield running


@pytest.fixture
def topic(cluster: LocalCluster) -> str:
    name = f"t{uuid.uuid4().hex[:8]}"
    cluster.create_topic(name, partitions=6)
    return name


def member(cluster: LocalCluster, *topics: str, group: str, **options: Any) -> Consumer:
    return Consumer(
        *topics,
        bootstrap_servers=cluster.bootstrap_servers,
        group_id=group,
        group_protocol="consumer",
        auto_offset_reset="earliest",
        fetch_max_wait_ms=50,
        **options,
    )


async def until(condition: Callable[[], bool], what: str = "") -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.01)


def shared(members: list[Consumer], count: int) -> bool:
    """Return whether they own everything, evenly. Raises AssertionError if two own the same partition."""
    sizes = [len(consumer.assignment()) for consumer in members]
    everything = set[TopicPartition]().union(*(consumer.assignment() for consumer in members))
    assert len(everything) == sum(sizes), "a partition is owned by two"
    return len(everything) == count and max(sizes) - min(sizes) <= 1


async def test_members_join_and_leave(cluster: LocalCluster, topic: str) -> None:
    async with AsyncExitStack() as stack:
        members: list[Consumer] = []
        events = KeptEvents()
        for count in (1, 2, 3):
            consumer = member(cluster, group=topic)
            consumer.subscribe([topic], listener=events if count == 1 else None)
            members.append(await stack.enter_async_context(consumer))
            await until(lambda: shared(members, 6))
        assert ("assigned", set(range(6))) in events.events
        assert sum(len(some) for event, some in events.events if event == "revoked") == 4
        await members.pop().stop()
        await until(lambda: shared(members, 6))
        new = f"{topic}-new"
        cluster.create_topic(new, partitions=2)
        members[1].subscribe([topic, new])
        await until(lambda: TopicPartition(new, 1) in members[1].assignment())
        await members[1].unsubscribe()
        assert not members[1].assignment()
        await until(lambda: len(members[0].assignment()) == 6)
    assert [event for event, _ in events.events][-1] == "revoked"
    async with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        [described] = await admin.describe_groups([topic])
        assert not described.members


async def test_with_members_of_librdkafka(cluster: LocalCluster, topic: str) -> None:
    theirs = confluent_kafka.Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": topic, "group.protocol": "consumer"}
    )
    theirs.subscribe([topic])

    def both_have(ours: Consumer) -> bool:
        theirs.poll(0)
        mine = {partition.partition for partition in ours.assignment()}
        its = {partition.partition for partition in theirs.assignment()}
        assert not mine & its, "a partition is owned by two"
        return len(mine) == len(its) == 3

    async with member(cluster, topic, group=topic) as ours:
        await until(lambda: both_have(ours))
        await asyncio.to_thread(theirs.close)
        await until(lambda: len(ours.assignment()) == 6)


async def test_offsets_are_committed_under_the_epoch(cluster: LocalCluster, topic: str) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in range(12):
            await producer.send(topic, b"%d" % number, partition=number % 6)
    async with member(cluster, topic, group=topic) as first:
        async with asyncio.timeout(30):
            for _ in range(12):
                await first.getone()
        await first.commit()
        before = first.group_metadata()
        async with member(cluster, topic, group=topic) as second:
            await until(lambda: shared([first, second], 6))
            assert first.group_metadata().generation > before.generation
            await first.commit()
            await second.commit()
        with pytest.raises(KafkaError) as refused:
            assert first.commits is not None
            await first.commits.kept.commit(
                before._replace(member_id="other"), {TopicPartition(topic, 0): OffsetAndMetadata(1)}
            )
        assert refused.value.code is ErrorCode.UNKNOWN_MEMBER_ID
        group = first._subscriber.group
        assert isinstance(group, ConsumerGroupMember)
        await group.outgrow(before.generation)
    async with member(cluster, topic, group=topic) as third:
        await until(lambda: len(third.assignment()) == 6)
        assert [await third.position(TopicPartition(topic, index)) for index in range(6)] == [2] * 6


async def test_a_member_that_was_silent_has_lost_everything_and_joins_anew(
    cluster: LocalCluster, topic: str
) -> None:
    events = KeptEvents()
    consumer = member(cluster, group=topic)
    consumer.subscribe([topic], listener=events)
    async with consumer, member(cluster, topic, group=topic) as other:
        await until(lambda: shared([consumer, other], 6))
        group = consumer._subscriber.group
        assert isinstance(group, ConsumerGroupMember)
        assert group._task is not None
        before = consumer.group_metadata()
        group._task.cancel()  # as if the process had been stopped for longer than its session
        await asyncio.gather(group._task, return_exceptions=True)
        await until(lambda: len(other.assignment()) == 6)
        with pytest.raises(KafkaError) as refused:
            await consumer.commit({TopicPartition(topic, 0): 0})
        assert refused.value.code is ErrorCode.UNKNOWN_MEMBER_ID
        group.start()
        await until(lambda: "lost" in [event for event, _ in events.events])
        await until(lambda: shared([consumer, other], 6))
        assert consumer.group_metadata().member_id == before.member_id


async def test_members_of_both_protocols_share(cluster: LocalCluster, topic: str) -> None:
    classic = Consumer(
        topic, bootstrap_servers=cluster.bootstrap_servers, group_id=topic, heartbeat_interval_ms=50
    )
    async with member(cluster, topic, group=topic) as newer:
        await until(lambda: len(newer.assignment()) == 6)
        async with classic as older:
            await until(lambda: shared([newer, older], 6))
        await until(lambda: len(newer.assignment()) == 6)


async def test_members_outlive_their_coordinator() -> None:
    with LocalCluster(brokers=3, settings=SETTINGS | {"group.consumer.session.timeout.ms": "10000"}) as own:
        own.create_topic("t", 6, 3)
        events = KeptEvents()
        members = [member(own, group="g") for _ in range(2)]
        for consumer in members:
            consumer.subscribe(["t"], listener=events)
        async with members[0], members[1]:
            await until(lambda: shared(members, 6))
            for consumer in members:
                group = consumer._subscriber.group
                assert isinstance(group, ConsumerGroupMember)
                coordinator = group._coordinator.broker_id
            assert coordinator is not None
            before = [consumer.assignment() for consumer in members]
            await asyncio.to_thread(own.kill, coordinator)
            async with asyncio.timeout(30):
                for consumer in members:
                    while True:
                        with suppress(KafkaError):
                            await consumer.commit(dict.fromkeys(consumer.assignment(), 1))
                            break
            assert [consumer.assignment() for consumer in members] == before
            async with member(own, "t", group="g") as third:
                await until(lambda: shared([*members, third], 6))
        assert "lost" not in [event for event, _ in events.events]


async def test_static_members_come_back_to_their_partitions(cluster: LocalCluster, topic: str) -> None:
    names = ("one", "two")
    members = [member(cluster, topic, group=topic, group_instance_id=name) for name in names]
    async with members[1]:
        async with members[0]:
            await until(lambda: shared(members, 6))
            before = members[0].assignment()
            epoch = members[1].group_metadata().generation
            async with member(cluster, topic, group=topic, group_instance_id="one") as second:
                with pytest.raises(KafkaError, match="group_instance_id") as refused:
                    await second.getone()
                assert refused.value.code is ErrorCode.UNRELEASED_INSTANCE_ID
        async with member(cluster, topic, group=topic, group_instance_id="one") as again:
            await until(lambda: len(again.assignment()) == 3)
            assert again.assignment() == before
            assert members[1].group_metadata().generation == epoch


async def test_patterns_are_the_brokers_or_the_clients(cluster: LocalCluster, topic: str) -> None:
    by_broker, by_client = (member(cluster, group=f"{topic}-{n}", metadata_max_age_ms=200) for n in range(2))
    by_broker.subscribe(pattern=rf"{topic}[\pL]*")  # which Python's re does not know
    by_client.subscribe(pattern=re.compile(rf"{topic}(?=x|$)x*"))  # which RE2 does not know
    async with by_broker, by_client:
        await until(lambda: len(by_broker.assignment()) == len(by_client.assignment()) == 6)
        assert by_broker.subscription() == by_client.subscription() == {topic}
        async with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            await admin.create_topics([NewTopic(f"{topic}x", num_partitions=2)])
            await until(lambda: len(by_broker.assignment()) == len(by_client.assignment()) == 8)
            by_broker.subscribe([topic])
            await until(lambda: len(by_broker.assignment()) == 6)
            await admin.delete_topics([f"{topic}x"])
        await until(lambda: len(by_client.assignment()) == 6)
        by_broker.subscribe(pattern="(")
        with pytest.raises(KafkaError, match="RE2") as refused:
            await by_broker.getone()
        assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


async def test_what_ends_a_membership_is_said(cluster: LocalCluster, topic: str) -> None:
    async with member(cluster, topic, group=topic, group_remote_assignor="none") as consumer:
        with pytest.raises(KafkaError, match="group_remote_assignor") as refused:
            await consumer.getone()
        assert refused.value.code is ErrorCode.UNSUPPORTED_ASSIGNOR
    async with AsyncExitStack() as stack:
        members = [
            await stack.enter_async_context(
                member(cluster, topic, group=topic, group_remote_assignor="range")
            )
            for _ in range(5)
        ]
        await until(lambda: shared(members, 6))
        async with member(cluster, topic, group=topic) as sixth:
            with pytest.raises(KafkaError, match="no more members") as refused:
                await sixth.getone()
            assert refused.value.code is ErrorCode.GROUP_MAX_SIZE_REACHED


async def test_exactly_once_with_members_that_come_and_go(cluster: LocalCluster, topic: str) -> None:
    cluster.create_topic(f"{topic}.out", partitions=6)
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in range(1_200):
            await producer.send(topic, b"%d" % number, partition=number % 6)

    def copier() -> ExactlyOnce:
        return ExactlyOnce(
            topic,
            group_id=topic,
            group_protocol="consumer",
            bootstrap_servers=cluster.bootstrap_servers,
            max_batch_records=20,
            max_batch_ms=20,
            idle_timeout_ms=1_500,
            fetch_max_wait_ms=50,
        )

    async def copy(record: Any) -> NewRecord:
        if int(record.value) % 5 == 0:
            await asyncio.sleep(0.005)
        return NewRecord(f"{topic}.out", record.value, partition=record.partition)

    async def comes_and_goes() -> None:
        while True:
            async with copier() as exactly_once:
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.5):
                        await exactly_once.run(copy)

    async with copier() as steady:
        other = asyncio.create_task(comes_and_goes())
        await steady.run(copy)
        other.cancel()
        await asyncio.gather(other, return_exceptions=True)
    async with copier() as last:
        await last.run(copy)
    seen: dict[int, list[int]] = {}
    async with (
        Consumer(
            f"{topic}.out",
            bootstrap_servers=cluster.bootstrap_servers,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        ) as reader,
        asyncio.timeout(30),
    ):
        while sum(map(len, seen.values())) < 1_200:
            for place, records in (await reader.getmany(timeout_ms=100)).items():
                seen.setdefault(place.partition, []).extend(int(record.value or b"") for record in records)
    assert seen == {index: list(range(index, 1_200, 6)) for index in range(6)}


def test_options_of_the_other_protocol_are_refused_by_name() -> None:
    for name, value in (
        ("session_timeout_ms", 45_000),
        ("heartbeat_interval_ms", 3_000),
        ("partition_assignment_strategy", ("range",)),
    ):
        with pytest.raises(ValueError, match=f"{name} cannot be set with group_protocol='consumer'"):
            Consumer("t", group_id="g", group_protocol="consumer", **{name: value})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="group_remote_assignor cannot be set with group_protocol='classic'"):
        Consumer("t", group_id="g", group_remote_assignor="range")
    with pytest.raises(ValueError, match="needs a group_id"):
        Consumer("t", group_protocol="consumer")
    with pytest.raises(ValueError, match="'classic' or 'consumer', not 'auto'"):
        Consumer("t", group_id="g", group_protocol="auto")  # type: ignore[arg-type]

"""The client with a real cluster whose processes are killed: no acknowledged record is lost, order holds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla.client import sync
from ottla.client.admin import TOPIC_RESOURCE, Admin, NewTopic
from ottla.client.consumer import Consumer
from ottla.client.consuming.reading import RECORDS_AT_A_TIME, RECORDS_IN_A_ROW
from ottla.client.producer import Producer
from ottla.client.records import TopicPartition
from ottla.protocol.errors import ErrorCode, KafkaError
from tests.cluster import RunningCluster, running_cluster

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    settings = {"group.initial.rebalance.delay.ms": "0", "broker.session.timeout.ms": "1000"}
    with running_cluster(
        tmp_path_factory.mktemp("client"), quorum=1, brokers=3, settings=settings
    ) as running:
        yield running


async def create(cluster: RunningCluster, name: str, partitions: int = 1) -> None:
    topic = NewTopic(name, partitions, 3, configs={"min.insync.replicas": "2"})
    async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        await admin.create_topics([topic])


async def read_all(cluster: RunningCluster, topic: str, count: int) -> dict[int, list[bytes]]:
    found: dict[int, list[bytes]] = {}
    async with Consumer(topic, bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        async with asyncio.timeout(60):
            while sum(map(len, found.values())) < count:
                for partition, records in (await consumer.getmany(timeout_ms=200)).items():
                    found.setdefault(partition.partition, []).extend(
                        record.value or b"" for record in records
                    )
    return found


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_dying_leader_costs_nothing_that_was_acknowledged(cluster: RunningCluster) -> None:
    await create(cluster, "survives", 3)
    reading = asyncio.create_task(read_all(cluster, "survives", 3000))
    async with Producer(bootstrap_servers=cluster.bootstrap, linger_ms=1) as producer:
        placed = []
        for number in range(3000):
            placed.append(await producer.send("survives", b"%d" % number, partition=number % 3))
            if number % 100 == 0:
                await asyncio.sleep(0.002)
            if number == 1500:
                leader = await asyncio.to_thread(cluster.leader, "survives", 0)
                assert leader is not None
                victim = cluster.broker(leader)
                await asyncio.to_thread(victim.kill9)
        await producer.flush()
        assert all(delivery.exception() is None for delivery in placed)
    seen_live, found = await reading, await read_all(cluster, "survives", 3000)
    for partition in range(3):
        assert (
            seen_live[partition]
            == found[partition]
            == [b"%d" % number for number in range(partition, 3000, 3)]
        )
    victim.restart()
    await asyncio.to_thread(cluster.wait_until_in_sync, "survives")


async def test_members_share_partitions_and_take_over_from_one_that_leaves(cluster: RunningCluster) -> None:
    await create(cluster, "shared", 4)
    options = {"bootstrap_servers": cluster.bootstrap, "group_id": "sharing", "heartbeat_interval_ms": 100}
    async with Consumer("shared", auto_offset_reset="earliest", **options) as first:
        await eventually(lambda: len(first.assignment()) == 4)
        async with Consumer("shared", auto_offset_reset="earliest", **options) as second:
            await eventually(lambda: len(first.assignment()) == len(second.assignment()) == 2)
            assert not first.assignment() & second.assignment()
        await eventually(lambda: len(first.assignment()) == 4)


async def test_committed_offsets_are_where_the_next_member_begins(cluster: RunningCluster) -> None:
    await create(cluster, "resumed")
    here = TopicPartition("resumed", 0)
    async with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for number in range(10):
            await producer.send("resumed", b"%d" % number)
    options = {"bootstrap_servers": cluster.bootstrap, "group_id": "resuming"}
    async with Consumer("resumed", auto_offset_reset="earliest", **options) as consumer:
        for _ in range(4):
            await consumer.getone()
        await consumer.commit()
        assert await consumer.committed(here) == 4
    async with Consumer("resumed", auto_offset_reset="none", **options) as consumer:
        assert (await consumer.getone()).offset == 4


async def test_places_in_a_partition(cluster: RunningCluster) -> None:
    await create(cluster, "places")
    here = TopicPartition("places", 0)
    async with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for number in range(5):
            await producer.send_and_wait("places", b"%d" % number, timestamp_ms=1_700_000_000_000 + number)
    async with Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([here])
        assert (await consumer.getone()).value == b"0"
        assert await consumer.position(here) == 1
        consumer.seek(here, 3)
        assert (await consumer.getone()).value == b"3"
        consumer.seek_to_timestamp(1_700_000_000_002)
        assert (await consumer.getone()).value == b"2"
        consumer.seek_to_end()
        assert await consumer.position(here) == 5
        consumer.seek_to_beginning()
        assert (await consumer.getone()).value == b"0"
        consumer.seek(here, 99)
        assert (await consumer.getone()).value == b"0", "out of range: back to the beginning"
        assert await consumer.beginning_offsets([here]) == {here: 0}
        assert await consumer.end_offsets([here]) == {here: 5}
        assert await consumer.offsets_for_times({here: 1_700_000_000_004}) == {here: 4}
        consumer.pause(here)
        assert await consumer.getmany(timeout_ms=50) == {}
        consumer.resume(here)
        assert (await consumer.getone()).value == b"1"


async def test_others_on_the_loop_have_their_turn_while_much_is_read(cluster: RunningCluster) -> None:
    """These loops never wait once the records are here."""
    await create(cluster, "plenty")
    count = 40_000
    async with Producer(bootstrap_servers=cluster.bootstrap, linger_ms=50) as producer:
        for _ in range(count):
            await producer.send("plenty", b"v")
    turn = longest = seen = since = 0

    async def others() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    def note(records: int) -> None:
        nonlocal seen, since, longest, last_turn
        since = records if turn != last_turn else since + records
        seen, longest, last_turn = seen + records, max(longest, since), turn

    for at_once in (True, False):
        seen, last_turn = 0, turn
        other = asyncio.create_task(others())
        async with Consumer(
            "plenty", bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest"
        ) as consumer:
            async with asyncio.timeout(60):
                while at_once and seen < count:
                    for records in (await consumer.getmany(timeout_ms=None, max_records=count)).values():
                        assert len(records) <= RECORDS_AT_A_TIME
                        note(len(records))
                while seen < count:
                    await anext(consumer)
                    note(1)
        other.cancel()
        assert longest <= RECORDS_AT_A_TIME + RECORDS_IN_A_ROW


async def test_the_admin_client(cluster: RunningCluster) -> None:
    await create(cluster, "administered", 2)
    async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        await admin.create_partitions("administered", 3)
        await eventually_partitions(admin, "administered", 3)
        await admin.alter_configs(TOPIC_RESOURCE, "administered", {"retention.ms": "60000"})
        await eventually_config(admin, "administered", "retention.ms", "60000")
        assert len((await admin.describe_cluster()).brokers) == 3
        assert "administered" in await admin.list_topics()
        with pytest.raises(KafkaError) as refused:
            await admin.create_topics([NewTopic("administered")])
        assert refused.value.code == ErrorCode.TOPIC_ALREADY_EXISTS
        await admin.delete_topics(["administered"])


async def eventually_partitions(admin: Admin, topic: str, count: int) -> None:
    async with asyncio.timeout(60):
        while len((await admin.describe_topics([topic]))[0].available) != count:
            await asyncio.sleep(0.01)


async def eventually_config(admin: Admin, topic: str, name: str, value: str) -> None:
    async with asyncio.timeout(60):
        while {entry.name: entry.value for entry in await admin.describe_configs(TOPIC_RESOURCE, topic)}[
            name
        ] != value:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("kind", ["idempotent", "transactional", "synchronous", "spool"])
async def test_a_topic_whose_limit_shrinks_takes_everything_in_parts(
    cluster: RunningCluster, kind: str, tmp_path: Path
) -> None:
    """This holds for every kind of send: batches are refused for their size (KIP-126) while others are in flight after
    them.
    """
    topic = f"shrinks-{kind}"
    await create(cluster, topic)
    values = [b"%d-" % number + bytes(2_000) for number in range(1_500)]

    async def shrink() -> None:
        async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            await admin.alter_configs(TOPIC_RESOURCE, topic, {"max.message.bytes": "20000"})

    def send_from_a_thread() -> list[int]:
        with sync.Producer(bootstrap_servers=cluster.bootstrap, linger_ms=5) as producer:
            first = [producer.send(topic, value, partition=0) for value in values[:500]]
            asyncio.run(shrink())
            rest = [producer.send(topic, value, partition=0) for value in values[500:]]
            return [delivery.result(30).offset for delivery in first + rest]

    async def send(producer: Producer) -> list[int]:
        deliveries = [await producer.send(topic, value, partition=0) for value in values[:500]]
        await shrink()
        deliveries += [await producer.send(topic, value, partition=0) for value in values[500:]]
        return [(await delivery).offset for delivery in deliveries]

    if kind == "synchronous":
        offsets = await asyncio.to_thread(send_from_a_thread)
    elif kind == "transactional":
        async with (
            Producer(bootstrap_servers=cluster.bootstrap, transactional_id=topic) as producer,
            producer.transaction(),
        ):
            offsets = await send(producer)
    else:
        spool_dir = tmp_path if kind == "spool" else None
        async with Producer(
            bootstrap_servers=cluster.bootstrap, linger_ms=5, spool_dir=spool_dir
        ) as producer:
            offsets = await send(producer)
    assert (await read_all(cluster, topic, len(values)))[0] == values
    assert offsets == sorted(set(offsets))
    if kind != "spool":  # between a spool's chunks stand the markers of its transactions
        assert offsets == list(range(len(values)))


async def test_values_of_settings_may_be_numbers_and_truth_values(cluster: RunningCluster) -> None:
    async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        configs = {"retention.ms": 5_000, "preallocate": True, "min.cleanable.dirty.ratio": 0.25}
        await admin.create_topics([NewTopic("typed", 1, 1, configs=configs)])
        await admin.alter_configs(TOPIC_RESOURCE, "typed", {"retention.ms": 6_000.0, "preallocate": False})
        own = {
            entry.name: entry.value
            for entry in await admin.describe_configs(TOPIC_RESOURCE, "typed")
            if entry.source == "topic"
        }
    assert own == {"retention.ms": "6000", "preallocate": "false", "min.cleanable.dirty.ratio": "0.25"}

"""Awaits cancelled at any point: the client works on, and no record is lost or doubled beyond the promises."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import suppress
from typing import Any, TypeVar

import pytest

from ottla import Consumer, KafkaError, OutOfTurn, Producer, RecordMetadata, TopicPartition
from ottla.testing import LocalCluster
from tests.client.fake_cluster import Fault, fake_cluster
from tests.client.fake_transactions import Trouble, transactional_cluster

seeds = pytest.mark.parametrize("seed", range(8))
DEADLINE_S = 60
T = TypeVar("T")
PLACE = TopicPartition("t", 0)


@pytest.fixture(autouse=True)
async def nothing_left() -> AsyncIterator[None]:
    """Check that every task ends with the client that began it."""
    before = asyncio.all_tasks()
    yield
    async with asyncio.timeout(25):
        while left := asyncio.all_tasks() - before - {asyncio.current_task()}:
            await asyncio.wait(left, timeout=0.1)


async def cancelled_somewhere(
    chance: random.Random, call: Coroutine[Any, Any, T], *, turns: int = 12, patience_s: float = 0.004
) -> T | None:
    """Return a call's result; None if it was cancelled, in one of the first turns of the loop, or some time later."""
    task = asyncio.ensure_future(call)
    if chance.random() < 0.5:
        for _ in range(chance.randrange(turns)):
            await asyncio.sleep(0)
    else:
        await asyncio.wait([task], timeout=chance.random() * patience_s)
    task.cancel()
    with suppress(asyncio.CancelledError):
        return await task
    return None


# producers


@seeds
async def test_a_send_that_is_cancelled_has_taken_nothing(seed: int) -> None:
    """The send is cancelled while the topic is unknown, while the buffer is full, and when it yields to other tasks."""
    chance = random.Random(seed)
    print("seed", seed)
    faults = [Fault.NONE] * 6 + [Fault.DROP_BEFORE, Fault.DROP_AFTER, Fault.NOT_LEADER, Fault.MOVE_LEADER]
    taken: dict[bytes, asyncio.Future[RecordMetadata]] = {}
    cancelled: set[bytes] = set()
    async with fake_cluster(brokers=2, partitions=2, fault=lambda: chance.choice(faults)) as cluster:
        async with Producer(
            bootstrap_servers=cluster.bootstrap, batch_size=200, buffer_memory=1_000, linger_ms=1
        ) as producer:

            async def send(value: bytes) -> None:
                placed = await cancelled_somewhere(
                    chance, producer.send("t", value, partition=len(value) % 2)
                )
                if placed is None:
                    cancelled.add(value)
                else:
                    taken[value] = placed

            async with asyncio.timeout(DEADLINE_S):
                for group in range(12):
                    await asyncio.gather(*(send(b"%d-%d" % (group, n) * (n + 1)) for n in range(12)))
                    if chance.random() < 0.5:
                        await cancelled_somewhere(chance, producer.flush())
                await producer.flush()
            assert taken
            assert cancelled
            assert all(placed.exception() is None for placed in taken.values())
            assert (await producer.send_and_wait("t", b"last", partition=0)).offset >= 0
        found = Counter(value for log in cluster.logs for value in log.values)
    assert found == Counter([*taken, b"last"])


@seeds
async def test_waits_that_are_cancelled_leave_the_records_alone(seed: int) -> None:
    chance = random.Random(seed)
    print("seed", seed)
    faults = [Fault.NONE] * 4 + [Fault.DROP_AFTER, Fault.MOVE_LEADER]
    acknowledged: set[bytes] = set()
    async with fake_cluster(brokers=2, partitions=1, fault=lambda: chance.choice(faults)) as cluster:
        async with Producer(bootstrap_servers=cluster.bootstrap) as producer:

            async def send(value: bytes) -> None:
                if await cancelled_somewhere(chance, producer.send_and_wait("t", value), patience_s=0.02):
                    acknowledged.add(value)

            async with asyncio.timeout(DEADLINE_S):
                await asyncio.gather(*(send(b"%d" % number) for number in range(200)))
                await producer.flush()
        found = Counter(cluster.logs[0].values)
    assert acknowledged <= set(found)
    assert set(found.values()) <= {1}


@seeds
async def test_a_producer_that_is_stopped_halfway_or_never_quite_started_leaves_nothing(seed: int) -> None:
    chance = random.Random(seed)
    print("seed", seed)
    async with fake_cluster(brokers=1) as cluster:
        for _ in range(20):
            producer = Producer(bootstrap_servers=cluster.bootstrap, linger_ms=chance.choice([0, 5]))
            await cancelled_somewhere(chance, producer.start())
            with suppress(KafkaError, RuntimeError):  # closed, or never begun, if the start was cancelled
                placed = [await producer.send("t", b"v") for _ in range(5)]
                await cancelled_somewhere(chance, producer.stop())
                async with asyncio.timeout(DEADLINE_S):
                    await asyncio.wait(placed)  # each gets a result or an error
            await producer.stop()


# transactions


@pytest.mark.parametrize("version", [1, 2])
@seeds
async def test_a_transaction_that_is_cancelled_anywhere_is_whole_or_nothing(version: int, seed: int) -> None:
    chance = random.Random(seed)
    print("seed", seed)
    troubles = [Trouble.NONE] * 8 + [Trouble.DROP_AFTER, Trouble.BUSY]
    known: dict[int, bool] = {}
    async with transactional_cluster(version, brokers=2, partitions=2) as cluster:
        cluster.trouble = lambda: chance.choice(troubles)
        async with Producer(
            bootstrap_servers=cluster.bootstrap, transactional_id="x", linger_ms=chance.choice([0, 1])
        ) as producer:

            async def work(number: int) -> bool:
                async with producer.transaction():
                    for index in range(4):
                        await producer.send("t", b"%d-%d" % (number, index), partition=index % 2)
                    await producer.send_offsets_to_transaction({PLACE: number}, "g")
                    if chance.random() < 0.3:
                        await producer.flush()
                return True

            async with asyncio.timeout(DEADLINE_S):
                for number in range(40):
                    done = await cancelled_somewhere(chance, work(number), turns=80, patience_s=0.02)
                    try:
                        await producer.begin_transaction()
                        known[number] = bool(done)
                        await producer.abort_transaction()
                    except OutOfTurn:  # it was cancelled while the commit was asked for: that is asked again
                        await producer.commit_transaction()
                        known[number] = True
        found = Counter(int(value.split(b"-")[0]) for log in (0, 1) for value in cluster.committed(log))
        assert cluster.hanging() == []
    assert found == {number: 4 for number, committed in known.items() if committed}


async def test_a_transaction_that_could_not_begin_is_in_nobodys_way() -> None:
    async with transactional_cluster(2) as cluster:
        async with Producer(bootstrap_servers=cluster.bootstrap, transactional_id="x") as producer:
            for turns in range(30):
                task = asyncio.ensure_future(producer.transaction(app_version=turns).__aenter__())
                for _ in range(turns):
                    await asyncio.sleep(0)
                task.cancel()
                try:
                    begun = await task
                except asyncio.CancelledError:
                    continue
                await begun.abort()
            async with producer.transaction(app_version=99):
                await producer.send("t", b"v")
        assert cluster.committed(0) == [b"v"]


async def test_others_may_not_end_what_another_task_has_open() -> None:
    async with transactional_cluster(2) as cluster:
        async with Producer(bootstrap_servers=cluster.bootstrap, transactional_id="x") as producer:
            await producer.begin_transaction()
            await producer.send("t", b"v")
            with pytest.raises(OutOfTurn):
                async with producer.transaction():
                    raise AssertionError("one at a time")
            await producer.commit_transaction()
        assert cluster.committed(0) == [b"v"]


# consumers


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as cluster:
        yield cluster


@pytest.mark.cluster
@seeds
async def test_reads_and_commits_that_are_cancelled_skip_nothing(cluster: LocalCluster, seed: int) -> None:
    chance = random.Random(seed)
    print("seed", seed)
    topic, count = f"reads-{seed}", 600
    cluster.create_topic(topic, partitions=2)
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in range(count):
            await producer.send(topic, b"%d" % number, partition=number % 2)
    read: list[int] = []
    async with Consumer(
        topic,
        bootstrap_servers=cluster.bootstrap_servers,
        group_id=topic,
        auto_offset_reset="earliest",
        heartbeat_interval_ms=20,
    ) as consumer:
        async with asyncio.timeout(DEADLINE_S):
            while len(read) < count:
                what = chance.random()
                if what < 0.5:
                    record = await cancelled_somewhere(chance, consumer.getone())
                    read += [] if record is None else [int(record.value or b"")]
                elif what < 0.9:
                    some = consumer.getmany(timeout_ms=chance.choice([0, 5, 100]), max_records=7)
                    for records in (await cancelled_somewhere(chance, some) or {}).values():
                        read += [int(fetched.value or b"") for fetched in records]
                else:
                    with suppress(KafkaError):  # before the group has met
                        await cancelled_somewhere(chance, consumer.commit())
            await consumer.commit()
            for index in (0, 1):
                assert await consumer.committed(TopicPartition(topic, index)) == count // 2
    for index in (0, 1):
        assert [number for number in read if number % 2 == index] == list(range(index, count, 2))


@pytest.mark.cluster
@seeds
async def test_members_that_start_or_stop_halfway_hold_up_nobody(cluster: LocalCluster, seed: int) -> None:
    chance = random.Random(seed)
    print("seed", seed)
    topic = f"members-{seed}"
    cluster.create_topic(topic, partitions=2)
    options: dict[str, Any] = {
        "bootstrap_servers": cluster.bootstrap_servers,
        "group_id": chance.choice([topic, None]),
        "auto_offset_reset": "earliest",
        "heartbeat_interval_ms": 20,
    }
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        await producer.send_and_wait(topic, b"v", partition=0)
    for _ in range(10):
        consumer = Consumer(topic, **options)
        started = asyncio.ensure_future(consumer.start())
        await asyncio.wait([started], timeout=chance.choice([0, 0.001, 0.003, 0.02]))
        started.cancel()
        await asyncio.wait([started])
        if started.cancelled():
            with pytest.raises(KafkaError):  # rather than wait for ever
                async with asyncio.timeout(DEADLINE_S):
                    await consumer.getone()
        else:
            await cancelled_somewhere(chance, consumer.stop(), patience_s=0.02)
        await consumer.stop()
    async with Consumer(topic, **options) as consumer, asyncio.timeout(40):  # the session timeout is 45 s
        assert (await consumer.getone()).value == b"v"

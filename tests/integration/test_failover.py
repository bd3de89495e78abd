"""Processes killed by SIGKILL: acknowledged records stay, once and in order, and all clients go on."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from tests.cluster import RunningCluster, running_cluster, wait_for, wait_until
from tests.integration.history import (
    OUTLIVES_ALL_BROKERS,
    SMALL_CLUSTER,
    Load,
    coordinator_of,
    make_topic,
    read_all,
    wait_identical_replicas,
)

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """Run three quorum nodes and three brokers; each test leaves all of them running."""
    with running_cluster(tmp_path_factory.mktemp("failover"), settings=SMALL_CLUSTER) as running:
        yield running


def some_leader(cluster: RunningCluster, topic: str, partition: int = 0) -> int:
    return wait_for(lambda: cluster.leader(topic, partition), f"a leader of {topic}-{partition}")


@pytest.mark.parametrize("together_with_the_quorum_leader", [False, True])
def test_a_leader_dies_under_load(cluster: RunningCluster, together_with_the_quorum_leader: bool) -> None:
    topic = "led-alone" if not together_with_the_quorum_leader else "led-together"
    make_topic(cluster.bootstrap, topic, min_insync_replicas=2)
    with Load(cluster.bootstrap, topic) as load:
        load.wait_acknowledged(500)
        victims = [cluster.broker(some_leader(cluster, topic))]
        if together_with_the_quorum_leader:
            victims.insert(0, cluster.quorum_leader())
        for victim in victims:
            os.kill(victim.pid, signal.SIGKILL)
        wait_until(lambda: not any(victim.alive for victim in victims), "the end of the leaders")
        load.wait_acknowledged(1_000)
        for victim in victims:
            victim.restart()
        cluster.wait_until_in_sync(topic)
        cluster.wait_until_quorum_agrees()
    assert load.failed == []
    load.check(read_all(cluster.bootstrap, topic))
    wait_identical_replicas(cluster, topic, 3)


def test_the_quorum_leader_dies_while_topics_are_created_and_records_are_written(
    cluster: RunningCluster,
) -> None:
    admin = make_topic(cluster.bootstrap, "written", min_insync_replicas=2)
    with Load(cluster.bootstrap, "written") as load:
        load.wait_acknowledged(200)
        victim = cluster.quorum_leader()
        names = [f"created-{n}" for n in range(12)]
        created: dict[str, Future[None]] = {}
        for n, name in enumerate(names):
            created |= admin.create_topics([NewTopic(name, 2, 3)], request_timeout=30)
            if n == len(names) // 2:
                victim.kill9()
        for name in names:
            created[name].result(30)
        load.wait_acknowledged(500)
        assert cluster.quorum_leader().id != victim.id
        victim.restart()
        admin.delete_topics(names[:2])[names[0]].result(30)
        load.wait_acknowledged(200)
    wait_until(lambda: set(names[2:]) <= set(admin.list_topics(timeout=10).topics), "the created topics")
    assert load.failed == []
    load.check(read_all(cluster.bootstrap, "written"))


def send(bootstrap: str, topic: str, values: list[bytes]) -> None:
    """Write values round robin, or fail."""
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for n, value in enumerate(values):
        producer.produce(
            topic, value, partition=n % 3, on_delivery=lambda e, _m: errors.append(e) if e else None
        )
    assert producer.flush(30) == 0
    assert errors == []


def take(consumer: Consumer, count: int) -> list[bytes]:
    """Poll until `count` values have come."""
    values: list[bytes] = []
    deadline = time.monotonic() + 60
    while len(values) < count:
        assert time.monotonic() < deadline, f"{len(values)} of {count} read"
        values += [
            message.value() or b"" for message in consumer.consume(500, 0.1) if message.error() is None
        ]
    return values


def test_a_group_outlives_its_coordinator(cluster: RunningCluster) -> None:
    topic, group = "grouped", "outlives"
    admin = make_topic(cluster.bootstrap, topic, min_insync_replicas=2)
    first = [b"a%d" % n for n in range(300)]
    second = [b"b%d" % n for n in range(300)]
    config = {
        "bootstrap.servers": cluster.bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": 10_000,
        "log_level": 0,
    }
    consumer = Consumer(config)
    consumer.subscribe([topic])
    send(cluster.bootstrap, topic, first)
    assert sorted(take(consumer, 300)) == sorted(first)
    consumer.commit(asynchronous=False)
    victim = cluster.broker(coordinator_of(admin, group))
    victim.kill9()
    assert committed(consumer, topic) == [100, 100, 100]
    send(cluster.bootstrap, topic, second)
    assert sorted(take(consumer, 300)) == sorted(second)
    wait_until(lambda: commits(consumer), "a commit at the new coordinator")
    assert committed(consumer, topic) == [200, 200, 200]
    consumer.close()
    victim.restart()
    cluster.wait_until_in_sync("__consumer_offsets")
    successor = Consumer(config)
    assert committed(successor, topic) == [200, 200, 200]
    successor.close()


def commits(consumer: Consumer) -> bool:
    """Return whether a synchronous commit succeeds; the coordinator may be moving."""
    try:
        consumer.commit(asynchronous=False)
    except KafkaException:
        return False
    return True


def committed(consumer: Consumer, topic: str) -> list[int]:
    """Return the committed offsets of the three partitions; the coordinator may be moving."""

    def ask() -> list[int] | None:
        try:
            found = consumer.committed([TopicPartition(topic, p) for p in range(3)], timeout=10)
        except KafkaException:
            return None
        return [partition.offset for partition in found]

    return wait_for(ask, "committed offsets", 40)


async def test_an_aiokafka_group_outlives_its_coordinator(cluster: RunningCluster) -> None:
    topic, group = "grouped-aio", "outlives-aio"
    admin = make_topic(cluster.bootstrap, topic, min_insync_replicas=2)
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=cluster.bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=10_000,
        retry_backoff_ms=50,
        metadata_max_age_ms=1_000,
    )
    producer = AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap, enable_idempotence=True, retry_backoff_ms=50
    )
    async with consumer, producer, asyncio.timeout(90):
        assert await exchange(producer, consumer, topic, b"a") == 150
        await consumer.commit()
        victim = cluster.broker(await asyncio.to_thread(coordinator_of, admin, group))
        await asyncio.to_thread(victim.kill9)
        assert await exchange(producer, consumer, topic, b"b") == 150
        await consumer.commit()
        for partition in consumer.assignment():
            assert await consumer.committed(partition) == 100
    victim.restart()
    await asyncio.to_thread(cluster.wait_until_in_sync, "__consumer_offsets")


async def exchange(producer: AIOKafkaProducer, consumer: AIOKafkaConsumer, topic: str, prefix: bytes) -> int:
    """Send 150 values, read them, and return the number that was read."""
    values = [prefix + b"%d" % n for n in range(150)]
    await asyncio.gather(*[await producer.send(topic, v, partition=n % 3) for n, v in enumerate(values)])
    read: list[bytes] = []
    while len(read) < len(values):
        for records in (await consumer.getmany(timeout_ms=100)).values():
            read += [record.value for record in records]
    assert sorted(read) == sorted(values)
    return len(read)


def test_everything_dies_at_once(tmp_path: Path) -> None:
    with running_cluster(tmp_path, settings=SMALL_CLUSTER) as cluster:
        make_topic(cluster.bootstrap, "all", min_insync_replicas=2)
        consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": "g",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 0,
                **OUTLIVES_ALL_BROKERS,
            }
        )
        consumer.subscribe(["all"])
        with Load(cluster.bootstrap, "all") as load:
            load.wait_acknowledged(1_000)
            take(consumer, 600)
            consumer.commit(asynchronous=False)
            before = committed(consumer, "all")
            nodes = [*cluster.brokers, *cluster.quorum]
            for node in nodes:
                os.kill(node.pid, signal.SIGKILL)
            wait_until(lambda: not any(node.alive for node in nodes), "the end of all processes")
            acknowledged_before = len(load.acknowledged)
            for node in nodes:
                node.restart()
            load.wait_acknowledged(1_000, 60)
        assert load.failed == []
        assert acknowledged_before >= 1_000
        read = read_all(cluster.bootstrap, "all")
        load.check(read)
        assert committed(consumer, "all") == before
        consumer.close()
        wait_identical_replicas(cluster, "all", 3)

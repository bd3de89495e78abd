"""Group members come and go while a transaction may still move the committed offsets (KIP-447)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any, Self

import confluent_kafka
import pytest

from ottla import Admin, Consumer, ExactlyOnce, NewRecord, NewTopic, Producer, TopicPartition
from ottla.client.consuming.group_metadata import ConsumerGroupMetadata
from tests.cluster import RunningCluster, running_cluster
from tests.integration.history import SMALL_CLUSTER

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

PARTITIONS, RECORDS = 4, 10
COMMITTED, MOVED = 5, 7
GUESTS = 3
DEADLINE_S = 60

First = dict[int, int]
"""Offsets of the first record that a member got, by partition."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    settings = SMALL_CLUSTER | {
        "group.consumer.min.heartbeat.interval.ms": "100",
        "group.consumer.heartbeat.interval.ms": "100",
    }
    with running_cluster(
        tmp_path_factory.mktemp("unstable"), quorum=1, brokers=1, settings=settings
    ) as running:
        yield running


@pytest.fixture
async def topic(cluster: RunningCluster, request: pytest.FixtureRequest) -> str:
    """Return a topic whose name is also that of a group that has committed `COMMITTED` in every partition."""
    name = request.node.name.translate({ord("["): "-", ord("]"): None})
    async with (
        Admin(bootstrap_servers=cluster.bootstrap) as admin,
        Producer(bootstrap_servers=cluster.bootstrap) as producer,
    ):
        await admin.create_topics([NewTopic(name, PARTITIONS, 1), NewTopic(f"{name}.out", PARTITIONS, 1)])
        for number in range(PARTITIONS * RECORDS):
            await producer.send(name, b"%d" % (number // PARTITIONS), partition=number % PARTITIONS)
        await producer.flush()
        await admin.alter_offsets(name, dict.fromkeys(places(name), COMMITTED))
    return name


def places(topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, index) for index in range(PARTITIONS)]


@asynccontextmanager
async def moving_offsets(cluster: RunningCluster, topic: str) -> AsyncIterator[Producer]:
    """Yield a producer with an open transaction that has moved the offsets of the group."""
    async with Producer(
        bootstrap_servers=cluster.bootstrap, transactional_id=topic, transaction_timeout_ms=DEADLINE_S * 1000
    ) as producer:
        await producer.begin_transaction()
        offsets = dict.fromkeys(places(topic), MOVED)
        await producer.send_offsets_to_transaction(offsets, ConsumerGroupMetadata(topic))
        yield producer


async def end(transaction: Producer, *, commits: bool) -> int:
    """Return the offset that counts after the end."""
    await (transaction.commit_transaction() if commits else transaction.abort_transaction())
    return MOVED if commits else COMMITTED


def member(cluster: RunningCluster, topic: str, protocol: str) -> Consumer:
    options: dict[str, Any] = {"group_protocol": protocol}
    if protocol == "classic":
        options["heartbeat_interval_ms"] = 50
    return Consumer(
        topic,
        bootstrap_servers=cluster.bootstrap,
        group_id=topic,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        enable_auto_commit=False,
        fetch_max_wait_ms=50,
        **options,
    )


async def read(consumer: Consumer, first: First) -> None:
    for place, records in (await consumer.getmany(timeout_ms=20)).items():
        first.setdefault(place.partition, records[0].offset)


async def read_until(condition: Callable[[], object], *readers: tuple[Consumer, First]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            for consumer, first in readers:
                await read(consumer, first)


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_members_wait_for_the_end_of_the_transaction(
    cluster: RunningCluster, topic: str, protocol: str, *, commits: bool
) -> None:
    first: First = {}
    async with moving_offsets(cluster, topic) as transaction, member(cluster, topic, protocol) as steady:
        for _ in range(GUESTS):
            await read_until(lambda: len(steady.assignment()) == PARTITIONS, (steady, first))
            async with member(cluster, topic, protocol) as guest:
                await read_until(
                    lambda guest=guest: guest.assignment() and len(steady.assignment()) < PARTITIONS,
                    (steady, first),
                    (guest, first),
                )
        await read_until(lambda: len(steady.assignment()) == PARTITIONS, (steady, first))
        assert first == {}, "a member began while the offsets could still move"
        expected = await end(transaction, commits=commits)
        await read_until(lambda: len(first) == PARTITIONS, (steady, first))
    assert first == dict.fromkeys(range(PARTITIONS), expected)


class LibrdkafkaMember:
    """A librdkafka member whose polls alternate with the loop."""

    def __init__(self, cluster: RunningCluster, topic: str, options: dict[str, Any]) -> None:
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": topic,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 50,
                **options,
            }
        )
        self._consumer.subscribe([topic])

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self._consumer.close)

    def assignment(self) -> list[confluent_kafka.TopicPartition]:
        return self._consumer.assignment()

    async def read(self, first: First) -> None:
        message = await asyncio.to_thread(self._consumer.poll, 0.05)
        if message is not None and message.error() is None:
            first.setdefault(message.partition() or 0, message.offset() or 0)


RANGE = {"partition.assignment.strategy": "range", "heartbeat.interval.ms": 100}
CONSUMER = {"group.protocol": "consumer"}


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize(
    ("options", "rounds"),
    [pytest.param(RANGE, GUESTS, id="range"), pytest.param(CONSUMER, 1, id="consumer")],
)
async def test_librdkafka_members_wait_for_the_end_of_the_transaction(
    cluster: RunningCluster, topic: str, options: dict[str, Any], rounds: int, *, commits: bool
) -> None:
    """The assignment of `steady` changes while it fetches the offsets.

    With the consumer protocol it accepts no further assignment until it knows them.
    """
    first: First = {}

    async def until(condition: Callable[[], object], *members: LibrdkafkaMember) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                for member in members:
                    await member.read(first)

    async with (
        moving_offsets(cluster, topic) as transaction,
        LibrdkafkaMember(cluster, topic, options) as steady,
    ):
        for _ in range(rounds):
            await until(lambda: len(steady.assignment()) == PARTITIONS, steady)
            async with LibrdkafkaMember(cluster, topic, options) as guest:
                await until(lambda: 0 < len(steady.assignment()) < PARTITIONS, steady, guest)
        assert first == {}, "a member began while the offsets could still move"
        expected = await end(transaction, commits=commits)
        await until(lambda: len(first) == PARTITIONS, steady)
    assert first == dict.fromkeys(range(PARTITIONS), expected)


@pytest.mark.parametrize("commits", [True, False])
async def test_copiers_copy_from_where_the_transaction_has_left_the_group(
    cluster: RunningCluster, topic: str, *, commits: bool
) -> None:
    def copier() -> ExactlyOnce:
        return ExactlyOnce(
            topic,
            group_id=topic,
            bootstrap_servers=cluster.bootstrap,
            heartbeat_interval_ms=50,
            max_batch_ms=20,
            fetch_max_wait_ms=50,
            idle_timeout_ms=500,
        )

    def copy(record: Any) -> NewRecord:
        return NewRecord(f"{topic}.out", record.value, partition=record.partition)

    async with moving_offsets(cluster, topic) as transaction, copier() as steady:
        for _ in range(GUESTS):
            async with copier() as guest:
                await asyncio.gather(steady.run(copy), guest.run(copy))
        expected = await end(transaction, commits=commits)
        await steady.run(copy)
    wanted = {place.partition: list(range(expected, RECORDS)) for place in places(topic)}
    assert await copied(cluster, f"{topic}.out") == wanted


async def copied(cluster: RunningCluster, topic: str) -> dict[int, list[int]]:
    """Return the offsets of the originals, by partition."""
    found: dict[int, list[int]] = {index: [] for index in range(PARTITIONS)}
    async with (
        Consumer(
            topic,
            bootstrap_servers=cluster.bootstrap,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        ) as reader,
        asyncio.timeout(DEADLINE_S),
    ):
        ends = await reader.end_offsets(places(topic))
        for place, end in ends.items():
            while await reader.position(place) < end:
                for partition, records in (await reader.getmany(timeout_ms=100)).items():
                    found[partition.partition] += [int(record.value or b"") for record in records]
    return found

"""Programs that go on in a restored cluster where they stood at the cut: each record is processed exactly once."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import confluent_kafka
import pytest

from ottla import Admin, ConsumerRecord, ExactlyOnce, NewRecord, NewTopic, Producer
from tests.cluster import RunningCluster
from tests.integration.mirroring import DEADLINE_S, records_of, until
from tests.integration.restorations import backup_to, restore_from, run

pytestmark = pytest.mark.timeout(240)

PARTITIONS = 2
RECORDS = 1_000


async def fill(cluster: RunningCluster, topic: str, numbers: range) -> None:
    """Write numbers to a topic, in transactions over all of its partitions."""
    async with Producer(bootstrap_servers=cluster.bootstrap, transactional_id=topic) as producer:
        for first in range(numbers.start, numbers.stop, 50):
            async with producer.transaction():
                for number in range(first, min(first + 50, numbers.stop)):
                    await producer.send(topic, b"%d" % number, partition=number % PARTITIONS)


async def create(cluster: RunningCluster, *topics: str) -> None:
    async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in topics])


async def values_of(cluster: RunningCluster, topic: str) -> list[int]:
    """Return the committed values of a topic, sorted."""
    found = await records_of(cluster.bootstrap, topic, "read_committed")
    return sorted(int(record[3]) for records in found.values() for record in records)


def consumed(cluster: RunningCluster, topic: str, group: str, count: int) -> list[int]:
    """Read some records as the only member of a group of librdkafka, and commit the offsets after them."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([topic])
    found: list[int] = []
    while len(found) < count:
        messages = consumer.consume(min(7, count - len(found)), DEADLINE_S)
        assert messages, f"{len(found)} of {count} records were read"
        for message in messages:
            assert message.error() is None, message.error()
            found.append(int(message.value() or b""))
        consumer.commit(asynchronous=False)
    consumer.close()
    return found


def begun(cluster: RunningCluster, topic: str, group: str) -> None:
    """Commit the beginning of a topic, since a group without offsets fails in these tests."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group})
    places = [confluent_kafka.TopicPartition(topic, index, 0) for index in range(PARTITIONS)]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


async def test_a_group_of_librdkafka_goes_on_at_the_offsets_of_the_cut(
    source_and_target: tuple[RunningCluster, RunningCluster], store: Path
) -> None:
    source, target = source_and_target
    topic = f"orders-{uuid.uuid4().hex[:8]}"
    group = f"readers-of-{topic}"
    await create(source, topic)
    await fill(source, topic, range(RECORDS))
    await asyncio.to_thread(begun, source, topic, group)
    before = await asyncio.to_thread(consumed, source, topic, group, RECORDS // 3)
    await asyncio.to_thread(run, *backup_to(store, source, "--topics", topic, "--groups", group))
    # What happens after the cut is lost with the source.
    await asyncio.to_thread(consumed, source, topic, group, RECORDS // 3)
    await fill(source, topic, range(RECORDS, RECORDS + 50))

    await asyncio.to_thread(run, *restore_from(store, target))
    after = await asyncio.to_thread(consumed, target, topic, group, RECORDS - len(before))
    assert sorted(before + after) == list(range(RECORDS))
    await fill(target, topic, range(RECORDS, RECORDS + 10))
    assert sorted(await asyncio.to_thread(consumed, target, topic, group, 10)) == list(
        range(RECORDS, RECORDS + 10)
    )


@asynccontextmanager
async def copying(cluster: RunningCluster, topic: str, copies: str) -> AsyncIterator[None]:
    """Copy a topic exactly once until the block ends, in small transactions."""

    async def copied(record: ConsumerRecord) -> NewRecord:
        await asyncio.sleep(0.001)
        return NewRecord(copies, record.value, record.key, partition=record.partition)

    async with ExactlyOnce(
        topic, group_id=topic, bootstrap_servers=cluster.bootstrap, max_batch_records=20
    ) as copier:
        running = asyncio.ensure_future(copier.run(copied))
        try:
            yield
        finally:
            running.cancel()
            await asyncio.wait([running])


async def test_an_exactly_once_program_goes_on_where_it_stood_at_the_cut(
    source_and_target: tuple[RunningCluster, RunningCluster], store: Path
) -> None:
    source, target = source_and_target
    topic = f"orders-{uuid.uuid4().hex[:8]}"
    copies = f"{topic}-copies"
    await create(source, topic, copies)
    await fill(source, topic, range(RECORDS))
    async with copying(source, topic, copies):
        await until(lambda: has_copies(source, copies, RECORDS // 10), "some copies")
        words = backup_to(store, source, "--topics", f"{topic}|{copies}", "--groups", topic)
        await asyncio.to_thread(run, *words)

    await asyncio.to_thread(run, *restore_from(store, target))
    at_cut = await values_of(target, copies)
    assert RECORDS // 10 <= len(at_cut) == len(set(at_cut))
    await fill(target, topic, range(RECORDS, RECORDS + 50))
    async with copying(target, topic, copies):
        await until(lambda: has_copies(target, copies, RECORDS + 50), "all copies")
    assert await values_of(target, copies) == list(range(RECORDS + 50))


async def has_copies(cluster: RunningCluster, copies: str, count: int) -> bool:
    """Return whether a topic has some number of committed records."""
    return len(await values_of(cluster, copies)) >= count

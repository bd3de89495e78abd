"""aiokafka: pure asyncio, speaks only the non-flexible versions."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.structs import TopicPartition

pytestmark = pytest.mark.cluster


async def test_two_members_share_and_the_first_takes_over(bootstrap: str, new_topic: str) -> None:
    def member() -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            new_topic,
            bootstrap_servers=bootstrap,
            group_id=f"g-{new_topic}",
            heartbeat_interval_ms=200,
            session_timeout_ms=6_000,
        )

    first, second = member(), member()
    async with asyncio.timeout(60):
        await first.start()
        await second.start()
        everything = {TopicPartition(new_topic, p) for p in range(3)}
        while not (
            first.assignment() | second.assignment() == everything
            and first.assignment().isdisjoint(second.assignment())
            and second.assignment()
        ):
            await first.getmany(timeout_ms=50)
            await second.getmany(timeout_ms=50)
        await second.stop()
        while first.assignment() != everything:
            await first.getmany(timeout_ms=50)
        await first.stop()


async def test_offsets_and_times(bootstrap: str, one_partition: str) -> None:
    where = TopicPartition(one_partition, 0)
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        sent = [
            await producer.send_and_wait(one_partition, b"v", timestamp_ms=1_000 * n) for n in range(1, 6)
        ]
    assert [s.offset for s in sent] == list(range(5))
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap) as consumer:
        assert await consumer.beginning_offsets([where]) == {where: 0}
        assert await consumer.end_offsets([where]) == {where: 5}
        found = await consumer.offsets_for_times({where: 2_500})
        assert found[where].offset == 2


async def test_admin_creates_and_deletes(bootstrap: str, new_topic: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        name = f"{new_topic}-more"
        await admin.create_topics([NewTopic(name, 2, 3)])
        async with asyncio.timeout(60):
            while name not in await admin.list_topics():
                await asyncio.sleep(0.05)
            await admin.delete_topics([name])
            while name in await admin.list_topics():
                await asyncio.sleep(0.05)
    finally:
        await admin.close()

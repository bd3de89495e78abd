"""Kafka is killed and comes back while clients go on: nothing is lost, doubled or out of order."""

from __future__ import annotations

import asyncio
import uuid

from benchmarks.clusters import Cluster
from ottla import Admin, Consumer, NewTopic, Producer, RecordMetadata
from tests.compat.reading import eventually


async def test_a_producer_and_a_member_live_through_it(kafka: Cluster) -> None:
    topic = f"restart-{uuid.uuid4().hex[:8]}"
    placed: list[asyncio.Future[RecordMetadata]] = []
    read: list[int] = []
    stop = asyncio.Event()
    async with Admin(bootstrap_servers=kafka.bootstrap) as admin:
        # Acknowledged records are on disk, since there is no other replica from which a killed broker could fetch them.
        await admin.create_topics([NewTopic(topic, 1, configs={"flush.messages": "1"})])

    async def write() -> None:
        async with Producer(bootstrap_servers=kafka.bootstrap) as producer:
            while not stop.is_set():
                placed.append(await producer.send(topic, b"%d" % len(placed)))
                await asyncio.sleep(0.002)

    async def consume() -> None:
        async with Consumer(
            topic,
            bootstrap_servers=kafka.bootstrap,
            group_id=topic,
            auto_offset_reset="earliest",
            enable_auto_commit=True,
            auto_commit_interval_ms=200,
        ) as consumer:
            while True:
                read.append(int((await consumer.getone()).value or b""))

    writing, reading = asyncio.create_task(write()), asyncio.create_task(consume())
    try:
        await eventually(lambda: len(read) > 100, "a hundred records read")
        await asyncio.to_thread(kafka.kill, kafka.brokers[0])
        before = len(placed)
        await eventually(lambda: len(placed) > before + 50, "records sent to nobody")
        await asyncio.to_thread(kafka.restart, kafka.brokers[0])
        resumed = len(placed)
        await eventually(lambda: len(placed) > resumed and placed[resumed].done(), "sending goes on")
        stop.set()
        await writing
        await eventually(lambda: len(set(read)) == len(placed), "all of it read")
    finally:
        for task in (writing, reading):
            task.cancel()
        await asyncio.wait([writing, reading])
    assert [future.result().offset for future in placed] == list(range(len(placed)))
    again = [number for number, record in enumerate(read) if record < number]
    first_again = again[0] if again else len(read)
    assert read[:first_again] == list(range(first_again))  # only uncommitted records are read twice
    assert list(dict.fromkeys(read)) == list(range(len(placed)))

"""Share consumers: tasks are accepted, delivered again, rejected and renewed, and start offsets are moved."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest

from benchmarks.clusters import Cluster
from ottla import (
    Admin,
    LostLock,
    Producer,
    Reject,
    ShareConsumer,
    ShareGroupOffset,
    ShareTask,
    TopicPartition,
    VersionUnsupported,
    Worker,
    WorkerRecord,
)
from ottla.client.admin import GROUP_RESOURCE
from tests.compat.conftest import Topics
from tests.compat.reading import DEADLINE_S

COUNT, PARTITIONS = 200, 2


async def begin_at_start(admin: Admin, group: str, **settings: object) -> None:
    configs = {"share.auto.offset.reset": "earliest"} | {
        name.replace("_", "."): value for name, value in settings.items()
    }
    await admin.alter_configs(GROUP_RESOURCE, group, configs)


async def fill(bootstrap: str, topic: str, count: int, partitions: int = PARTITIONS) -> None:
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(count):
            await producer.send(topic, b"%d" % number, partition=number % partitions)


async def test_tasks_are_worked_on_at_once(bootstrap: str, admin: Admin, topics: Topics, group: str) -> None:
    topic = await topics(PARTITIONS)
    await begin_at_start(admin, group)
    await fill(bootstrap, topic, COUNT)
    done: Counter[int] = Counter()
    rejected: Counter[int] = Counter()

    async def work(task: ShareTask) -> None:
        number = int(task.value)
        with suppress(ZeroDivisionError):
            async with task:
                await asyncio.sleep(0.01)
                if number % 10 == 0:
                    rejected[number] += 1
                    raise Reject("a ten")
                if number % 10 == 1 and task.delivery_count == 1:
                    raise ZeroDivisionError
                done[number] += 1
        if done.total() + rejected.total() == COUNT:
            finished.set()

    async def read() -> None:
        async with asyncio.TaskGroup() as working:
            async for task in queue:
                working.create_task(work(task))

    finished = asyncio.Event()
    queue = ShareConsumer(topic, group_id=group, bootstrap_servers=bootstrap, max_in_flight=50)
    async with asyncio.timeout(DEADLINE_S), queue:
        reading = asyncio.ensure_future(read())
        await finished.wait()
        await queue.stop()
        await reading
    assert done == Counter(number for number in range(COUNT) if number % 10)
    assert rejected == Counter(range(0, COUNT, 10))
    async with ShareConsumer(topic, group_id=group, bootstrap_servers=bootstrap) as other:
        assert await other.getmany(timeout_ms=1_000) == []


async def test_locks_are_renewed_and_lost(bootstrap: str, admin: Admin, topics: Topics, group: str) -> None:
    topic = await topics()
    await begin_at_start(admin, group, share_record_lock_duration_ms=1_000)
    await fill(bootstrap, topic, 2, 1)
    options: dict[str, Any] = {"group_id": group, "bootstrap_servers": bootstrap}
    async with asyncio.timeout(DEADLINE_S), ShareConsumer(topic, **options) as queue:
        first, second = await queue.getone(), await queue.getone()
        async with ShareConsumer(topic, **options) as other:
            assert await other.getmany(timeout_ms=3_500) == []
            assert not first.lost
            await first.accept()
            await admin.alter_configs(GROUP_RESOURCE, group, {"share.renew.acknowledge.enable": "false"})
            again = await other.getone()
            assert (again.offset, again.delivery_count) == (second.offset, 2)
            await again.accept()
        with pytest.raises(LostLock):
            await second.accept()


async def test_the_rest_is_released_at_the_end(
    bootstrap: str, admin: Admin, topics: Topics, group: str
) -> None:
    topic = await topics()
    await begin_at_start(admin, group)
    await fill(bootstrap, topic, 10, 1)
    options: dict[str, Any] = {"group_id": group, "bootstrap_servers": bootstrap}
    async with asyncio.timeout(DEADLINE_S):
        async with ShareConsumer(topic, **options) as queue:
            tasks: list[ShareTask] = []
            while len(tasks) < 10:
                tasks += await queue.getmany(timeout_ms=500)
            for task in tasks[:4]:
                await task.accept()
        place = TopicPartition(topic, 0)
        assert await admin.share_group_offsets(group) == {place: ShareGroupOffset(4, 6)}
        async with ShareConsumer(topic, **options) as queue:
            found = [await queue.getone() for _ in range(6)]
            assert sorted(task.offset for task in found) == [4, 5, 6, 7, 8, 9]
            assert {task.delivery_count for task in found} == {2}
            for task in found:
                task.accept()
        assert await admin.alter_share_group_offsets(group, {place: 8}) == {place: None}
        async with ShareConsumer(topic, **options) as queue:
            assert (await queue.getone()).offset == 8
        assert await admin.delete_groups([group]) == {group: None}


async def test_a_worker_takes_records_of_a_share_group(
    bootstrap: str, admin: Admin, topics: Topics, group: str
) -> None:
    topic = await topics(PARTITIONS)
    await begin_at_start(admin, group)
    await fill(bootstrap, topic, COUNT)
    worker = Worker(topic, group_id=group, source="share", bootstrap_servers=bootstrap, idle_timeout_ms=2_000)
    done: Counter[int] = Counter()

    @worker.handler
    async def work(record: WorkerRecord) -> None:
        done[int(record.value)] += 1

    async with asyncio.timeout(DEADLINE_S):
        await worker.run()
    assert done == Counter(range(COUNT))


async def test_a_cluster_without_share_groups_is_refused(old_kafka: Cluster) -> None:
    with pytest.raises(VersionUnsupported, match="has no share groups"):
        async with ShareConsumer("tasks", group_id="mailers", bootstrap_servers=old_kafka.bootstrap):
            pass

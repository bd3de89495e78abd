"""Share consumers whose leaders are killed while tasks run: no task is lost, and an accepted task does not return."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress

import pytest

from ottla import Admin, LostLock, NewTopic, Producer, ShareConsumer, ShareTask
from ottla.client.admin import GROUP_RESOURCE
from tests.cluster import RunningCluster, running_cluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

PARTITIONS = 3
TASKS = 600


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    settings = {"share.coordinator.state.topic.num.partitions": "3", "broker.session.timeout.ms": "1000"}
    folder = tmp_path_factory.mktemp("queues")
    with running_cluster(folder, quorum=1, brokers=3, settings=settings) as running:
        yield running


def queue_of(cluster: RunningCluster) -> ShareConsumer:
    return ShareConsumer("tasks", group_id="mailers", bootstrap_servers=cluster.bootstrap, max_in_flight=50)


async def test_no_task_is_lost_when_leaders_are_killed(cluster: RunningCluster) -> None:
    async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        await admin.create_topics([NewTopic("tasks", PARTITIONS, 3, configs={"min.insync.replicas": "2"})])
        changes = {"share.auto.offset.reset": "earliest", "share.delivery.count.limit": 10}
        await admin.alter_configs(GROUP_RESOURCE, "mailers", changes)
    async with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for number in range(TASKS):
            await producer.send("tasks", b"%d" % number, partition=number % PARTITIONS)
    accepted: Counter[bytes] = Counter()
    lost: Counter[bytes] = Counter()

    async def work(task: ShareTask) -> None:
        await asyncio.sleep(random.uniform(0, 0.2))
        try:
            await task.accept()
        except LostLock:
            lost[task.value] += 1
        else:
            accepted[task.value] += 1
        if len(accepted.keys() | lost.keys()) == TASKS:
            finished.set()

    async def read() -> None:
        async with asyncio.TaskGroup() as group:
            async for task in queue:
                group.create_task(work(task))

    finished = asyncio.Event()
    queue = queue_of(cluster)
    async with asyncio.timeout(150), queue:
        reading = asyncio.ensure_future(read())
        for partition in range(2):
            before = len(accepted)
            while len(accepted) < min(TASKS, before + 60):
                await asyncio.sleep(0.01)
            leader = await asyncio.to_thread(cluster.leader, "tasks", partition)
            assert leader is not None
            cluster.broker(leader).kill9()
            await asyncio.to_thread(cluster.broker(leader).restart)
            await asyncio.to_thread(cluster.wait_until_in_sync, "tasks")
        await finished.wait()
        await queue.stop()
        await reading
    async with queue_of(cluster) as queue:
        while tasks := await queue.getmany(timeout_ms=2_000):
            for task in tasks:
                await task.accept()
                accepted[task.value] += 1
    # The answer to an acknowledgement may be lost with its leader: the task counts as lost then, and does not return.
    assert accepted.keys() | lost.keys() == {b"%d" % number for number in range(TASKS)}
    assert max(accepted.values()) == 1
    assert len(accepted) > TASKS - 100


KEYS, EACH = 10, 40


async def test_tasks_of_a_key_keep_their_order_when_leaders_are_killed(cluster: RunningCluster) -> None:
    """A task may begin again, since a leader that dies forgets who holds it. No later task of its key begins before."""
    async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        configs = {"min.insync.replicas": "2"}
        await admin.create_topics([NewTopic("accounts", PARTITIONS, 3, configs=configs)])
        changes = {"share.auto.offset.reset": "earliest", "ottla.share.ordering": "key"}
        await admin.alter_configs(GROUP_RESOURCE, "clerks", changes)
    async with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for number in range(EACH):
            for key in range(KEYS):
                await producer.send("accounts", b"%d" % number, key=b"%d" % key)
    begun: dict[bytes, list[int]] = {b"%d" % key: [] for key in range(KEYS)}
    working: set[bytes] = set()

    async def work(task: ShareTask) -> None:
        with suppress(LostLock):
            async with task:
                key = task.key
                assert key not in working, f"two tasks of key {key!r} at once"
                working.add(key)
                begun[key].append(int(task.value))
                await asyncio.sleep(random.uniform(0, 0.02))
                working.discard(key)

    async def read(queue: ShareConsumer) -> None:
        async with asyncio.TaskGroup() as group:
            async for task in queue:
                group.create_task(work(task))

    async def begun_are(count: int) -> None:
        while sum(map(len, begun.values())) < count:
            await asyncio.sleep(0.01)

    async def kill_leaders() -> None:
        for partition in range(2):
            await begun_are((partition + 1) * KEYS * EACH // 4)
            leader = await asyncio.to_thread(cluster.leader, "accounts", partition)
            assert leader is not None
            cluster.broker(leader).kill9()
            await asyncio.to_thread(cluster.broker(leader).restart)
            await asyncio.to_thread(cluster.wait_until_in_sync, "accounts")
        while not all(numbers and numbers[-1] == EACH - 1 for numbers in begun.values()):
            await asyncio.sleep(0.01)
        for queue in queues:
            await queue.stop()

    async with AsyncExitStack() as stack, asyncio.timeout(150), asyncio.TaskGroup() as group:
        queues = [
            await stack.enter_async_context(
                ShareConsumer("accounts", group_id="clerks", bootstrap_servers=cluster.bootstrap)
            )
            for _ in range(3)
        ]
        for queue in queues:
            group.create_task(read(queue))
        group.create_task(kill_leaders())
    for numbers in begun.values():
        assert numbers == sorted(numbers)
        assert set(numbers) == set(range(EACH))

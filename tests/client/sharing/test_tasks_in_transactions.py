"""Tasks of a share group in the transactions of producers, with a real cluster: outputs and acknowledgements count
together, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

import ottla.sync
from ottla import (
    Consumer,
    KafkaError,
    LostLock,
    OutOfTurn,
    Producer,
    ProducerFenced,
    ShareConsumer,
    ShareTask,
    TransactionFailed,
)
from ottla.protocol.errors import ErrorCode
from ottla.testing import LocalCluster
from tests.client.sharing.queues import begin_at_start, fill

pytestmark = pytest.mark.cluster

PARTITIONS = 3
SETTINGS = {
    "group.share.min.record.lock.duration.ms": "1000",
    "share.coordinator.state.topic.num.partitions": "3",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(settings=SETTINGS) as running:
        yield running


@pytest.fixture
def topic(cluster: LocalCluster, request: pytest.FixtureRequest) -> str:
    """Return a new topic with six records; the share group of the same name begins at its start. A topic for outputs is
    beside it."""
    name: str = request.node.name
    cluster.create_topic(name, partitions=PARTITIONS)
    cluster.create_topic(f"{name}.out")
    asyncio.run(begin_at_start(cluster, name))
    asyncio.run(fill(cluster, name, range(6)))
    return name


def queue_of(cluster: LocalCluster, topic: str, **options: Any) -> ShareConsumer:
    return ShareConsumer(
        topic, **({"bootstrap_servers": cluster.bootstrap_servers, "group_id": topic} | options)
    )


def producer_of(cluster: LocalCluster, topic: str) -> Producer:
    return Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id=topic)


async def take(queue: ShareConsumer, count: int = 6) -> list[ShareTask]:
    async with asyncio.timeout(30):
        return [await queue.getone() for _ in range(count)]


async def left(cluster: LocalCluster, topic: str, count: int = 0) -> dict[int, int]:
    """Return the numbers that the group delivers now, at least `count`, and the counts of their deliveries."""
    found: dict[int, int] = {}
    async with asyncio.timeout(30), queue_of(cluster, topic) as queue:
        while (tasks := await queue.getmany(timeout_ms=1_000)) or len(found) < count:
            for task in tasks:
                found[int(task.value)] = task.delivery_count
                await task.release()
            if len(found) >= max(count, 1):
                break
    return found


async def outputs(cluster: LocalCluster, topic: str) -> list[int]:
    """Return the committed outputs."""
    found: list[int] = []
    async with Consumer(
        f"{topic}.out",
        bootstrap_servers=cluster.bootstrap_servers,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as reader:
        while records := (await reader.getmany(timeout_ms=1_000)).values():
            found += [int(record.value) for several in records for record in several]
    return sorted(found)


async def test_outputs_and_tasks_are_committed_together(cluster: LocalCluster, topic: str) -> None:
    async with queue_of(cluster, topic) as queue, producer_of(cluster, topic) as producer:
        for _ in range(4):
            async with await queue.getone() as task, producer.transaction() as transaction:
                await producer.send(f"{topic}.out", task.value)
                transaction.acknowledge(task)
        tasks = await take(queue, 2)
        async with producer.transaction() as transaction:  # Several tasks, of several partitions.
            for task in tasks:
                await producer.send(f"{topic}.out", task.value)
            transaction.acknowledge(*tasks)
        with pytest.raises(RuntimeError, match="acknowledged before"):
            tasks[0].accept()
    assert await outputs(cluster, topic) == list(range(6))
    assert await left(cluster, topic) == {}


async def test_an_abort_makes_tasks_available_again(cluster: LocalCluster, topic: str) -> None:
    async with queue_of(cluster, topic) as queue, producer_of(cluster, topic) as producer:
        tasks = await take(queue)
        with pytest.raises(ZeroDivisionError):
            async with tasks[0], producer.transaction() as transaction:
                await producer.send(f"{topic}.out", tasks[0].value)
                transaction.acknowledge(tasks[0])
                await queue.flush()  # The acknowledgement is part of the transaction.
                raise ZeroDivisionError
        with suppress(ZeroDivisionError):
            async with producer.transaction() as transaction:
                transaction.acknowledge(*tasks[1:3])  # It is aborted before they are sent.
                raise ZeroDivisionError
        again = await take(queue, 3)
        assert {task.value for task in again} == {task.value for task in tasks[:3]}
        assert {task.delivery_count for task in again} == {2}
        async with producer.transaction() as transaction:
            transaction.acknowledge(*again, *tasks[3:])
    assert await outputs(cluster, topic) == []
    assert await left(cluster, topic) == {}


async def test_a_transaction_holds_its_tasks_without_a_lock(cluster: LocalCluster, topic: str) -> None:
    await begin_at_start(cluster, topic, share_record_lock_duration_ms=1_000)
    async with queue_of(cluster, topic) as queue, producer_of(cluster, topic) as producer:
        tasks = await take(queue)
        async with producer.transaction() as transaction:
            transaction.acknowledge(*tasks[:3])
            await queue.flush()
            for task in tasks[3:]:
                await task.accept()
            async with queue_of(cluster, topic) as other:
                assert await other.getmany(timeout_ms=3_000) == []
            await queue.stop()  # The end of the member's sessions does not release them.
            async with queue_of(cluster, topic) as other:
                assert await other.getmany(timeout_ms=1_000) == []
    assert await left(cluster, topic) == {}


async def test_types_of_acknowledgements(cluster: LocalCluster, topic: str) -> None:
    async with queue_of(cluster, topic) as queue, producer_of(cluster, topic) as producer:
        tasks = await take(queue)
        async with producer.transaction() as transaction:
            transaction.acknowledge(*tasks[:3])
            transaction.acknowledge(*tasks[3:5], kind="release")
            transaction.acknowledge(tasks[5], kind="reject")
        assert await left(cluster, topic, 2) == {int(task.value): 2 for task in tasks[3:5]}
        with pytest.raises(ValueError, match="kind is accept, release or reject, not 'renew'"):
            async with producer.transaction() as transaction:
                transaction.acknowledge(tasks[0], kind="renew")  # type: ignore[arg-type]


async def test_a_group_with_letters_refuses_rejections(cluster: LocalCluster, topic: str) -> None:
    cluster.create_topic(f"dlq.{topic}", configs={"errors.deadletterqueue.group.enable": "true"})
    await begin_at_start(cluster, topic, **{"errors.deadletterqueue.topic.name": f"dlq.{topic}"})
    async with queue_of(cluster, topic) as queue, producer_of(cluster, topic) as producer:
        tasks = await take(queue)
        with pytest.raises(TransactionFailed) as caught:
            async with producer.transaction() as transaction:
                await producer.send(f"{topic}.out", tasks[0].value)
                transaction.acknowledge(tasks[0], kind="reject")
        assert isinstance(caught.value.__cause__, KafkaError)
        assert caught.value.__cause__.code is ErrorCode.INVALID_REQUEST
        assert "dead letter topic" in str(caught.value)
        async with (
            producer.transaction() as transaction
        ):  # Other tasks are not affected, and the task comes again.
            transaction.acknowledge(*tasks[1:])
        (again,) = await take(queue, 1)
        assert (again.value, again.delivery_count) == (tasks[0].value, 2)
        await again.reject()
    assert await outputs(cluster, topic) == []


async def test_a_member_without_its_locks_cannot_commit(cluster: LocalCluster, topic: str) -> None:
    async with queue_of(cluster, topic) as queue, producer_of(cluster, topic) as producer:
        tasks = await take(queue)
        for leader in queue._fetcher._leaders.values():
            assert leader._connection is not None
            leader._connection.close()
        with pytest.raises(KafkaError) as caught:
            async with producer.transaction() as transaction:
                await producer.send(f"{topic}.out", tasks[0].value)
                transaction.acknowledge(tasks[0])
        lost = caught.value if isinstance(caught.value, LostLock) else caught.value.__cause__
        assert isinstance(lost, LostLock)
        again = await take(queue)
        assert {task.delivery_count for task in again} == {2}
        with pytest.raises(LostLock):
            async with producer.transaction() as transaction:
                transaction.acknowledge(again[0], tasks[1])
        async with producer.transaction() as transaction:  # The refused call has acknowledged nothing.
            transaction.acknowledge(*again)
    assert await outputs(cluster, topic) == []
    assert await left(cluster, topic) == {}


async def test_a_lock_that_another_member_has_is_refused(cluster: LocalCluster, topic: str) -> None:
    """The broker refuses the acknowledgement of a member that does not know yet that its lock has ended."""
    settings = {"share_record_lock_duration_ms": 1_000, "share_renew_acknowledge_enable": "false"}
    await begin_at_start(cluster, topic, **settings)
    async with queue_of(cluster, topic) as queue, producer_of(cluster, topic) as producer:
        tasks = await take(queue)
        for leader in queue._fetcher._leaders.values():
            for held in leader.locks.drop_all():  # As if the clock of the member stood still.
                assert not held.is_lost
        async with queue_of(cluster, topic) as other:
            again = await take(other)
            with pytest.raises(TransactionFailed) as caught:
                async with producer.transaction() as transaction:
                    await producer.send(f"{topic}.out", tasks[0].value)
                    transaction.acknowledge(tasks[0])
            assert isinstance(caught.value.__cause__, LostLock)
            with suppress(LostLock):
                for task in again:
                    await task.accept()
    assert await outputs(cluster, topic) == []


async def test_a_fenced_producer_gives_its_tasks_back(cluster: LocalCluster, topic: str) -> None:
    async with queue_of(cluster, topic) as queue, producer_of(cluster, topic) as producer:
        tasks = await take(queue)
        with pytest.raises(ProducerFenced):
            async with producer.transaction() as transaction:
                await producer.send_and_wait(f"{topic}.out", tasks[0].value)
                async with producer_of(cluster, topic):
                    transaction.acknowledge(*tasks)
                    await queue.flush()
        again = await take(queue)
        assert {task.delivery_count for task in again} == {2}
        async with producer_of(cluster, topic) as successor, successor.transaction() as transaction:
            transaction.acknowledge(*again)
    assert await outputs(cluster, topic) == []
    assert await left(cluster, topic) == {}


async def test_tasks_need_an_open_transaction(cluster: LocalCluster, topic: str) -> None:
    async with queue_of(cluster, topic) as queue, producer_of(cluster, topic) as producer:
        tasks = await take(queue)
        with pytest.raises(OutOfTurn, match="has not begun"):
            producer.transaction().acknowledge(tasks[0])
        async with producer.transaction() as transaction:
            with pytest.raises(TypeError, match="ShareConsumer"):
                transaction.acknowledge("task")  # type: ignore[arg-type]
            transaction.acknowledge(tasks[0])
            await transaction.commit()
            with pytest.raises(OutOfTurn):
                transaction.acknowledge(tasks[1])
        await tasks[1].accept()


def test_threads_acknowledge_in_their_transactions(cluster: LocalCluster, topic: str) -> None:
    where = {"bootstrap_servers": cluster.bootstrap_servers}
    with (
        ottla.sync.ShareConsumer(topic, group_id=topic, **where) as queue,
        ottla.sync.Producer(transactional_id=f"{topic}-1", **where) as first,
        ottla.sync.Producer(transactional_id=f"{topic}-2", **where) as second,
    ):
        for producer in (first, second):
            for _ in range(3):
                with queue.getone(timeout_ms=30_000) as task, producer.transaction() as transaction:
                    producer.send(f"{topic}.out", task.value)
                    transaction.acknowledge(task)
        with (
            pytest.raises(TypeError, match=r"ottla\.sync\.ShareConsumer"),
            first.transaction() as transaction,
        ):
            transaction.acknowledge("task")  # type: ignore[arg-type]
    assert asyncio.run(outputs(cluster, topic)) == list(range(6))
    assert asyncio.run(left(cluster, topic)) == {}


async def test_two_transactions_share_the_sessions_of_a_consumer(cluster: LocalCluster, topic: str) -> None:
    async with (
        queue_of(cluster, topic) as queue,
        producer_of(cluster, f"{topic}-1") as first,
        producer_of(cluster, f"{topic}-2") as second,
    ):
        tasks = await take(queue)
        with suppress(ZeroDivisionError):
            async with first.transaction() as one:
                one.acknowledge(*tasks[:3])
                async with second.transaction() as other:
                    other.acknowledge(*tasks[3:])
                await queue.flush()
                raise ZeroDivisionError
        again = await take(queue, 3)
        assert {task.value for task in again} == {task.value for task in tasks[:3]}
        for task in again:
            await task.accept()


async def test_a_read_goes_on_after_a_session_was_lost_with_acknowledgements(
    cluster: LocalCluster, topic: str
) -> None:
    async with queue_of(cluster, topic) as queue:
        tasks = await take(queue)
        for leader in queue._fetcher._leaders.values():
            leader.is_dry = True  # The acknowledgements are sent without a fetch.
            assert leader._connection is not None
            leader._connection.close()
        answers = []
        for task in tasks:
            with suppress(LostLock):
                answers.append(task.accept())
        for answer in answers:
            with pytest.raises(LostLock):
                await answer
        for task in await take(queue):
            await task.accept()
    assert await left(cluster, topic) == {}

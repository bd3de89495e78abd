"""`ShareConsumer` with a real cluster: each task is acknowledged once, and no task is lost."""

from __future__ import annotations

import asyncio
import gc
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from ottla import (
    Acl,
    AclOperation,
    AclPermission,
    AclResourceType,
    Admin,
    AuthorizationFailed,
    ClientClosed,
    Consumer,
    KafkaError,
    LostLock,
    PatternType,
    Producer,
    Reject,
    SerializationFailed,
    ShareConsumer,
    ShareTask,
    TransactionFailed,
    UnreadableValue,
    VersionUnsupported,
)
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.share_transactions import TxnShareAcknowledgeRequest
from ottla.testing import LocalCluster
from tests.client.sharing.queues import begin_at_start, fill

pytestmark = pytest.mark.cluster

PARTITIONS = 3
SETTINGS = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.min.session.timeout.ms": "1000",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.heartbeat.interval.ms": "100",
    "share.coordinator.state.topic.num.partitions": "3",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(settings=SETTINGS) as running:
        yield running


@pytest.fixture
def topic(cluster: LocalCluster, request: pytest.FixtureRequest) -> str:
    """Return a new topic; the share group of the same name begins at its start."""
    name: str = request.node.name.translate({ord("["): "-", ord("]"): None})[:150]
    cluster.create_topic(name, partitions=PARTITIONS)
    asyncio.run(begin_at_start(cluster, name))
    return name


@pytest.fixture
def narrow_topic(cluster: LocalCluster, request: pytest.FixtureRequest) -> str:
    """Return a topic with one partition, which all members of its group share."""
    name: str = request.node.name
    cluster.create_topic(name, partitions=1)
    asyncio.run(begin_at_start(cluster, name))
    return name


def queue_of(cluster: LocalCluster, topic: str, **options: Any) -> ShareConsumer:
    return ShareConsumer(
        topic, **({"bootstrap_servers": cluster.bootstrap_servers, "group_id": topic} | options)
    )


async def test_tasks_are_accepted_once(cluster: LocalCluster, topic: str) -> None:
    values = await fill(cluster, topic, range(300))
    seen: Counter[bytes] = Counter()
    async with asyncio.timeout(60), queue_of(cluster, topic) as queue:
        async for task in queue:
            async with task:
                seen[task.value] += 1
                assert task.delivery_count == 1
            if len(seen) == len(values):
                break
    assert seen == Counter(values)
    more = await fill(cluster, topic, range(300, 303))
    async with asyncio.timeout(60), queue_of(cluster, topic) as queue:
        again = [(await queue.getone()) for _ in more]
        assert {task.value for task in again} == more


async def take(queue: ShareConsumer, count: int, seconds: float = 60) -> list[ShareTask]:
    """Return the next tasks."""
    async with asyncio.timeout(seconds):
        return [await queue.getone() for _ in range(count)]


async def nothing_left(cluster: LocalCluster, topic: str) -> None:
    """Check that the group has no record to deliver."""
    async with queue_of(cluster, topic) as queue:
        assert await queue.getmany(timeout_ms=1_500) == []


async def test_a_failed_task_returns_and_a_rejected_task_does_not(cluster: LocalCluster, topic: str) -> None:
    await fill(cluster, topic, range(30))
    counts: dict[int, list[int]] = {}
    done: set[int] = set()
    async with asyncio.timeout(60), queue_of(cluster, topic) as queue:
        async for task in queue:
            number = int(task.value)
            counts.setdefault(number, []).append(task.delivery_count)
            with suppress(ZeroDivisionError):
                async with task:
                    if number % 3 == 0:
                        raise Reject("a third")
                    if task.delivery_count < 2:
                        raise ZeroDivisionError
                    done.add(number)
            if len(done) == 20 and len(counts) == 30:
                break
    assert {number for number, seen in counts.items() if seen == [1]} == set(range(0, 30, 3))
    assert {number for number, seen in counts.items() if seen == [1, 2]} == done
    await nothing_left(cluster, topic)


async def test_a_hundred_tasks_are_in_flight(cluster: LocalCluster, topic: str) -> None:
    values = await fill(cluster, topic, range(400))
    seen: Counter[bytes] = Counter()
    at_once = most = 0
    full = asyncio.Event()

    async def work(task: ShareTask) -> None:
        nonlocal at_once, most
        async with task:
            at_once += 1
            most = max(most, at_once)
            if at_once == 100:
                full.set()
            await full.wait()
            await asyncio.sleep(0.01)
            seen[task.value] += 1
            at_once -= 1
        if len(seen) == len(values):
            stopping.append(asyncio.ensure_future(queue.stop()))

    stopping: list[asyncio.Future[None]] = []
    async with asyncio.timeout(60), queue_of(cluster, topic, max_in_flight=100) as queue:
        async with asyncio.TaskGroup() as group:
            async for task in queue:
                group.create_task(work(task))
        await stopping[0]
    assert most == 100
    assert seen == Counter(values)
    await nothing_left(cluster, topic)


async def test_a_slow_handler_keeps_its_lock(cluster: LocalCluster, narrow_topic: str) -> None:
    await begin_at_start(cluster, narrow_topic, share_record_lock_duration_ms=1_000)
    await fill(cluster, narrow_topic, range(2), 1)
    async with queue_of(cluster, narrow_topic) as queue, queue_of(cluster, narrow_topic) as other:
        first, second = await take(queue, 2)
        async with first, second:
            assert await other.getmany(timeout_ms=3_500) == []
        assert not first.lost
        await queue.flush()
        assert await other.getmany(timeout_ms=1_500) == []


async def test_a_lock_that_cannot_be_renewed_is_lost(
    cluster: LocalCluster, narrow_topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"share_record_lock_duration_ms": 1_000, "share_renew_acknowledge_enable": "false"}
    await begin_at_start(cluster, narrow_topic, **settings)
    await fill(cluster, narrow_topic, range(1), 1)
    async with queue_of(cluster, narrow_topic) as queue, queue_of(cluster, narrow_topic) as other:
        (task,) = await take(queue, 1)
        with pytest.raises(VersionUnsupported):
            await task.renew()
        reached = False
        with pytest.raises(LostLock, match="offset 0"):
            async with task:
                (again,) = await take(other, 1)
                async with asyncio.timeout(10):
                    while not task.lost:
                        await asyncio.sleep(0.01)
                reached = True
        assert reached
        assert again.delivery_count == 2
        await again.accept()
    assert "share.renew.acknowledge.enable" in caplog.text


async def test_the_end_waits_for_blocks_and_releases_the_rest(cluster: LocalCluster, topic: str) -> None:
    await fill(cluster, topic, range(9))
    ended: list[int] = []

    async def work(task: ShareTask) -> None:
        async with task:
            await asyncio.sleep(1.0)
            ended.append(int(task.value))

    async with queue_of(cluster, topic) as queue:
        tasks = await take(queue, 6)
        working = [asyncio.ensure_future(work(task)) for task in tasks[:3]]
        await asyncio.sleep(0)
        await queue.stop()
        assert len(ended) == 3
        await asyncio.gather(*working)
        with pytest.raises(ClientClosed):
            await queue.getone()
        with pytest.raises(ClientClosed):
            tasks[3].accept()
    async with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        (group,) = [group for group in await admin.list_groups() if group.group_id == topic]
        assert group.state == "Empty"
    async with queue_of(cluster, topic) as queue:
        left = await take(queue, 6, seconds=5)
        assert {int(task.value) for task in left} == set(range(9)) - set(ended)
        assert {task.delivery_count for task in left if task in tasks[3:]} == {2}


async def test_a_block_that_does_not_end_is_left_after_the_drain(cluster: LocalCluster, topic: str) -> None:
    await fill(cluster, topic, range(1))
    queue = queue_of(cluster, topic, drain_s=0.1)
    await queue.start()
    (task,) = await take(queue, 1)
    async with task:  # It is released by then, and its end changes nothing.
        await queue.stop()
    async with queue_of(cluster, topic) as other:
        (again,) = await take(other, 1, seconds=5)
        assert again.delivery_count == 2


async def test_batches_are_acknowledged_record_by_record(cluster: LocalCluster, topic: str) -> None:
    values = await fill(cluster, topic, range(60))
    accepted: set[bytes] = set()
    async with asyncio.timeout(60), queue_of(cluster, topic) as queue:
        while len(accepted) < 30:
            tasks = await queue.getmany(timeout_ms=1_000, max_records=20)
            assert len(tasks) <= 20
            answers = []
            for task in tasks:
                if int(task.value) % 2:
                    answers.append(task.accept())
                    accepted.add(task.value)
                else:
                    answers.append(task.reject())
            for answer in answers:
                await answer
        with pytest.raises(RuntimeError, match="acknowledged before"):
            tasks[0].accept()
    assert accepted == {value for value in values if int(value) % 2}
    await nothing_left(cluster, topic)


async def test_a_released_task_comes_back_after_its_delay(cluster: LocalCluster, topic: str) -> None:
    await fill(cluster, topic, range(4))
    async with queue_of(cluster, topic) as queue:
        tasks = sorted(await take(queue, 4), key=lambda task: int(task.value))
        begun_s = time.monotonic()
        await tasks[0].release(delay=timedelta(seconds=2))
        await tasks[1].release(delay=0.8)
        await tasks[2].release(delay=0)
        await tasks[3].accept()
        for number, least_s in ((2, 0.0), (1, 0.8), (0, 2.0)):
            (again,) = await take(queue, 1)
            assert (int(again.value), again.delivery_count) == (number, 2)
            assert time.monotonic() - begun_s > least_s - 0.1
            await again.accept()
    await nothing_left(cluster, topic)


@pytest.mark.parametrize("delay", [-1, 7 * 24 * 3600 + 1, timedelta(days=8), float("nan")], ids=range(4))
async def test_a_delay_is_at_most_seven_days(cluster: LocalCluster, topic: str, delay: float) -> None:
    await fill(cluster, topic, range(1))
    async with queue_of(cluster, topic) as queue:
        (task,) = await take(queue, 1)
        with pytest.raises(ValueError, match="delay is 0 to 604800 seconds"):
            task.release(delay=delay)
        with pytest.raises(TypeError, match="number of seconds"):
            task.release(delay="1 s")  # type: ignore[arg-type]
        await task.accept()  # The program still has the task.


async def test_brokers_without_delays_get_none(cluster: LocalCluster, topic: str) -> None:
    await fill(cluster, topic, range(1))
    async with queue_of(cluster, topic) as queue:
        (task,) = await take(queue, 1)
        (leader,) = (leader for leader in queue._fetcher._leaders.values() if leader.locks)
        assert leader._connection is not None
        del leader._connection.versions[TxnShareAcknowledgeRequest.api_key]  # As Apache Kafka's brokers.
        with pytest.raises(VersionUnsupported, match="keeps no delays"):
            task.release(delay=1)
        async with Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id=topic) as producer:
            with pytest.raises(VersionUnsupported, match="TxnShareAcknowledge"):
                async with producer.transaction() as transaction:
                    transaction.acknowledge(task)
        await task.release()
        (again,) = await take(queue, 1)
        await again.accept()


async def test_a_dropped_task_is_released(
    cluster: LocalCluster, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(cluster, topic, range(1))
    async with queue_of(cluster, topic) as queue:
        await take(queue, 1)
        gc.collect()
        (again,) = await take(queue, 1)
        assert again.delivery_count == 2
        again.accept()
    assert "dropped a task" in caplog.text


async def test_a_lost_session_loses_its_locks_and_no_record(cluster: LocalCluster, topic: str) -> None:
    await fill(cluster, topic, range(3))
    async with queue_of(cluster, topic) as queue:
        tasks = await take(queue, 3)
        for leader in queue._fetcher._leaders.values():
            assert leader._connection is not None
            leader._connection.close()
        answers = []
        for task in tasks:
            with suppress(LostLock):
                answers.append(task.accept())
        for answer in answers:
            with pytest.raises(LostLock):
                await answer
        again = await take(queue, 3)
        assert {task.delivery_count for task in again} == {2}
        for task in again:
            await task.accept()
    await nothing_left(cluster, topic)


async def test_a_record_that_cannot_be_read_is_released_or_rejected(
    cluster: LocalCluster, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    def number(value: bytes) -> int:
        return int(value)

    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        await producer.send(topic, b"broken", partition=0)
        await producer.send(topic, b"7", partition=0)
    refused: list[int | None] = []
    async with asyncio.timeout(30), queue_of(cluster, topic, value_deserializer=number) as queue:
        while len(refused) < 2:
            try:
                task = await queue.getone()
            except SerializationFailed as error:
                refused.append(error.offset)
            else:
                await task.accept()
    assert refused == [0, 0]
    async with queue_of(cluster, topic, value_deserializer=number, unreadable="reject") as queue:
        assert await queue.getmany(timeout_ms=1_000) == []
    assert "rejected" in caplog.text
    await nothing_left(cluster, topic)


async def test_the_group_decides_about_aborted_records(cluster: LocalCluster, topic: str) -> None:
    await begin_at_start(cluster, topic, share_isolation_level="read_committed")
    async with Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id=topic) as producer:
        with suppress(ZeroDivisionError):
            async with producer.transaction():
                await producer.send(topic, b"aborted", partition=0)
                raise ZeroDivisionError
        async with producer.transaction():
            await producer.send(topic, b"committed", partition=0)
    async with queue_of(cluster, topic) as queue:
        (task,) = await take(queue, 1)
        assert task.value == b"committed"
        await task.accept()
    await nothing_left(cluster, topic)


async def test_values_of_a_store_are_fetched(cluster: LocalCluster, topic: str, tmp_path: Path) -> None:
    store = f"file://{tmp_path}"
    options: dict[str, Any] = {"large_messages": "reference", "large_message_store": store}
    large = [bytes([number]) * 200_000 for number in range(8)]
    async with Producer(
        bootstrap_servers=cluster.bootstrap_servers, max_request_size=100_000, batch_size=50_000, **options
    ) as producer:
        for number, value in enumerate(large):
            await producer.send(topic, value, partition=number % PARTITIONS)
    async with queue_of(cluster, topic) as queue:
        with pytest.raises(UnreadableValue, match="large_message_store"):
            await take(queue, 1)
    async with queue_of(cluster, topic, large_message_buffer_bytes=450_000, **options) as queue:
        tasks = await take(queue, 8)
        assert sorted(task.value for task in tasks) == large
        for task in tasks:
            await task.accept()
    await nothing_left(cluster, topic)


async def test_a_block_is_a_span(cluster: LocalCluster, topic: str, exported: InMemorySpanExporter) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers, tracing=True) as producer:
        await producer.send(topic, b"7", partition=0)
    async with queue_of(cluster, topic, tracing=True) as queue:
        (task,) = await take(queue, 1)
        with pytest.raises(ZeroDivisionError):
            async with task:
                inside = trace.get_current_span().get_span_context()
                raise ZeroDivisionError
        assert not trace.get_current_span().get_span_context().is_valid
    spans = {span.name: span for span in exported.get_finished_spans()}
    created, handled = spans[f"create {topic}"], spans[f"process {topic}"]
    assert handled.context == inside
    assert [link.context.span_id for link in handled.links] == [created.context.span_id]
    attributes = handled.attributes or {}
    assert attributes["messaging.consumer.group.name"] == topic
    assert attributes["error.type"] == "ZeroDivisionError"


async def test_a_consumer_group_of_the_name_is_refused(cluster: LocalCluster, topic: str) -> None:
    async with Consumer(
        topic, bootstrap_servers=cluster.bootstrap_servers, group_id=f"{topic}-read"
    ) as reader:
        await reader.getmany(timeout_ms=2_000)
        with pytest.raises(KafkaError, match="group of another type"):
            async with queue_of(cluster, topic, group_id=f"{topic}-read"):
                pass


async def reserve(cluster: LocalCluster, kind: AclResourceType, name: str) -> None:
    """Give all rights on a resource to another user alone."""
    who, what = ("User:bob", "*"), (AclOperation.ALL, AclPermission.ALLOW)
    acl = Acl(kind, name, PatternType.LITERAL, *who, *what)
    async with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        await admin.create_acls([acl])


async def test_missing_rights_are_named(cluster: LocalCluster, topic: str) -> None:
    await fill(cluster, topic, range(1))
    await reserve(cluster, AclResourceType.GROUP, "of-bob")
    with pytest.raises(AuthorizationFailed, match=r"denied: DESCRIBE.*of-bob"):
        async with queue_of(cluster, topic, group_id="of-bob"):
            pass
    async with asyncio.timeout(60), queue_of(cluster, topic) as queue:
        await (await queue.getone()).accept()
        await reserve(cluster, AclResourceType.TOPIC, topic)
        with pytest.raises(KafkaError) as caught:
            await queue.getone()
    assert caught.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert topic in str(caught.value)


async def test_a_transaction_needs_the_right_of_the_consumers_user(cluster: LocalCluster, topic: str) -> None:
    await fill(cluster, topic, range(1))
    async with (
        queue_of(cluster, topic) as queue,
        Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id=topic) as producer,
    ):
        (task,) = await take(queue, 1)
        with pytest.raises(TransactionFailed) as caught:
            async with producer.transaction() as transaction:
                await reserve(cluster, AclResourceType.TRANSACTIONAL_ID, topic)
                transaction.acknowledge(task)
        assert isinstance(caught.value.__cause__, AuthorizationFailed)
        assert "WRITE on transactional id" in str(caught.value)
        (again,) = await take(queue, 1)  # The session goes on, and has released the task.
        assert again.delivery_count == 2
        await again.accept()

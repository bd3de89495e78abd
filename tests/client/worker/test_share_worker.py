"""`Worker` with `source="share"` and a real cluster: records are accepted, delivered again or rejected one by one."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

import ottla.sync
from ottla import (
    Consumer,
    KafkaError,
    Producer,
    ProducerFenced,
    Rate,
    Reject,
    Retry,
    ShareConsumer,
    TransactionAborted,
    VersionUnsupported,
    Worker,
    WorkerRecord,
)
from ottla.client.sharing.leader import ShareLeader
from ottla.testing import LocalCluster
from tests.client.sharing.queues import begin_at_start, fill
from tests.client.worker.silent_cluster import end_in_silence

pytestmark = pytest.mark.cluster

PARTITIONS = 3
FAST = Retry(attempts=3, first=0.05, factor=1, most=0.05, jitter=0)


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    settings = {"share.coordinator.state.topic.num.partitions": "3"}
    with LocalCluster(settings=settings) as running:
        yield running


@pytest.fixture
def topic(cluster: LocalCluster, request: pytest.FixtureRequest) -> str:
    """Return a new topic; the share group of the same name begins at its start."""
    name: str = request.node.name.translate({ord("["): "-", ord("]"): None})[:150]
    cluster.create_topic(name, partitions=PARTITIONS)
    asyncio.run(begin_at_start(cluster, name))
    return name


def worker_of(cluster: LocalCluster, topic: str, **options: Any) -> Worker:
    defaults: dict[str, Any] = {
        "bootstrap_servers": cluster.bootstrap_servers,
        "group_id": topic,
        "source": "share",
        "idle_timeout_ms": 700,
        "retry": FAST,
    }
    return Worker(topic, **(defaults | options))


async def left(cluster: LocalCluster, topic: str) -> dict[int, int]:
    """Return the numbers that the group delivers now, and the counts of their deliveries."""
    found: dict[int, int] = {}
    async with ShareConsumer(topic, group_id=topic, bootstrap_servers=cluster.bootstrap_servers) as queue:
        while tasks := await queue.getmany(timeout_ms=1_000):
            for task in tasks:
                found[int(task.value)] = task.delivery_count
                task.accept()
    return found


async def test_records_are_accepted_released_and_rejected(cluster: LocalCluster, topic: str) -> None:
    await fill(cluster, topic, range(90))
    worker = worker_of(cluster, topic)
    attempts: dict[int, list[int]] = defaultdict(list)

    @worker.handler
    async def work(record: WorkerRecord) -> None:
        number = int(record.value)
        attempts[number].append(record.attempt)
        if number % 10 == 1:
            raise Reject("ends with one")
        if number % 10 == 2:
            raise ZeroDivisionError
        if number % 10 == 3 and record.attempt == 1:
            raise ZeroDivisionError

    async with asyncio.timeout(60):
        await worker.run()
    expected = {1: [1], 2: [1, 2, 3], 3: [1, 2]}
    assert attempts == {number: expected.get(number % 10, [1]) for number in range(90)}
    assert await left(cluster, topic) == {}
    stats = worker.stats()
    assert (stats.succeeded, stats.failed, stats.retried, stats.letters) == (72, 45, 27, 18)
    assert (stats.held, stats.in_flight, stats.waiting, stats.uncommitted) == (0, 0, 0, 0)


async def test_the_delay_of_a_retry_outlives_the_worker(cluster: LocalCluster, topic: str) -> None:
    await fill(cluster, topic, range(2))
    worker = worker_of(cluster, topic, retry=Retry(attempts=3, first=4, most=4, jitter=0))
    failed_s: list[float] = []

    @worker.handler
    async def work(record: WorkerRecord) -> None:
        if record.value == b"1":
            failed_s.append(time.monotonic())
            raise ZeroDivisionError

    async with asyncio.timeout(30):
        await worker.run()
    assert time.monotonic() - failed_s[0] < 4
    assert len(failed_s) == 1
    async with ShareConsumer(topic, group_id=topic, bootstrap_servers=cluster.bootstrap_servers) as queue:
        async with asyncio.timeout(30):
            task = await queue.getone()
        assert (task.value, task.delivery_count) == (b"1", 2)
        assert time.monotonic() - failed_s[0] > 3.9
        await task.accept()


async def test_a_worker_waits_where_brokers_keep_no_delays(
    cluster: LocalCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: ShareLeader) -> None:
        raise VersionUnsupported("keeps no delays")

    monkeypatch.setattr(ShareLeader, "check_delays", refuse)
    await fill(cluster, topic, range(3))
    worker = worker_of(cluster, topic, retry=Retry(attempts=2, first=1.5, most=1.5, jitter=0))
    starts: dict[bytes, list[float]] = defaultdict(list)

    @worker.handler
    async def work(record: WorkerRecord) -> None:
        starts[record.value].append(time.monotonic())
        if record.attempt == 1:
            raise ZeroDivisionError

    async with asyncio.timeout(30):
        await worker.run()
    assert len(starts) == 3
    assert all(second - first > 1.4 for first, second in starts.values())


def test_delays_of_retries_are_at_most_seven_days() -> None:
    options: dict[str, Any] = {"group_id": "mailers", "source": "share"}
    Worker("tasks", retry=Retry(first=7_200, most=86_400), **options)  # No retry topic is needed.
    with pytest.raises(ValueError, match="retry has delays of up to"):
        Worker("tasks", retry=Retry(first=600_000, most=600_000), **options)


async def test_results_are_sent_before_a_record_is_accepted(cluster: LocalCluster, topic: str) -> None:
    cluster.create_topic(f"{topic}.out")
    await fill(cluster, topic, range(30))
    worker = worker_of(cluster, topic, value_deserializer=int, concurrency=4)
    at_once = most = 0

    @worker.handler
    async def work(record: WorkerRecord) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.02)
        at_once -= 1
        record.send(f"{topic}.out", b"%d" % record.value)
        if record.attempt == 1 and record.value == 7:
            raise ZeroDivisionError  # It sends nothing.

    async with asyncio.timeout(60):
        await worker.run()
    assert most == 4
    seen: Counter[bytes] = Counter()
    async with Consumer(
        f"{topic}.out", bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest"
    ) as reader:
        async with asyncio.timeout(30):
            while seen.total() < 30:
                for records in (await reader.getmany(timeout_ms=100)).values():
                    seen.update(record.value for record in records)
    assert seen == Counter(b"%d" % number for number in range(30))


async def test_handlers_end_when_the_worker_stops(cluster: LocalCluster, topic: str) -> None:
    await fill(cluster, topic, range(9))
    worker = worker_of(cluster, topic, concurrency=3, idle_timeout_ms=None)
    done: list[int] = []
    full = asyncio.Event()

    @worker.handler
    async def work(record: WorkerRecord) -> None:
        if worker.stats().in_flight == 3:
            full.set()
        await full.wait()
        worker.stop()
        await asyncio.sleep(0.3)
        done.append(int(record.value))

    async with asyncio.timeout(60):
        await worker.run()
    assert len(done) == 3
    # A record that was read and not begun counts as delivered, as in Kafka.
    assert (await left(cluster, topic)).keys() == set(range(9)) - set(done)


async def test_a_late_handler_is_cancelled_and_its_record_released(cluster: LocalCluster, topic: str) -> None:
    await fill(cluster, topic, range(1))
    worker = worker_of(cluster, topic, drain_s=0.1)

    @worker.handler
    async def work(record: WorkerRecord) -> None:
        worker.stop()
        await asyncio.sleep(60)

    async with asyncio.timeout(30):
        await worker.run()
    assert await left(cluster, topic) == {0: 2}


async def test_a_result_that_cannot_be_sent_stops_the_worker(cluster: LocalCluster, topic: str) -> None:
    cluster.create_topic(f"{topic}.out", configs={"max.message.bytes": "1000"})
    await fill(cluster, topic, range(1))
    worker = worker_of(cluster, topic)

    @worker.handler
    async def work(record: WorkerRecord) -> None:
        record.send(f"{topic}.out", b"x" * 5_000)

    async with asyncio.timeout(30):
        with pytest.raises(KafkaError) as caught:
            await worker.run()
    assert "is released" in caught.value.__notes__[0]
    assert await left(cluster, topic) == {0: 2}


async def committed(cluster: LocalCluster, topic: str) -> Counter[int]:
    """Return the committed outputs, with the number of times that each is there."""
    found: Counter[int] = Counter()
    async with Consumer(
        topic,
        bootstrap_servers=cluster.bootstrap_servers,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as reader:
        while records := (await reader.getmany(timeout_ms=1_000)).values():
            found.update(int(record.value) for several in records for record in several)
    return found


async def test_results_are_in_one_transaction_with_their_tasks(cluster: LocalCluster, topic: str) -> None:
    cluster.create_topic(f"{topic}.out")
    await fill(cluster, topic, range(90))
    workers = [worker_of(cluster, topic, transactional=True, max_batch_records=20) for _ in range(2)]
    attempts: Counter[int] = Counter()

    async def work(record: WorkerRecord) -> None:
        number = int(record.value)
        attempts[number] += 1
        if number % 10 == 9:
            return  # It has no output.
        record.send(f"{topic}.out", record.value)
        if number % 10 == 1:
            raise Reject("ends with one")
        if number % 10 == 2 and record.attempt == 1:
            raise ZeroDivisionError

    for worker in workers:
        worker.handler(work)
    async with asyncio.timeout(60):
        await asyncio.gather(*(worker.run() for worker in workers))
    assert attempts == {number: 2 if number % 10 == 2 else 1 for number in range(90)}
    assert await committed(cluster, f"{topic}.out") == Counter(n for n in range(90) if n % 10 not in (1, 9))
    assert await left(cluster, topic) == {}
    stats = [worker.stats() for worker in workers]
    assert [(each.held, each.in_flight, each.waiting, each.uncommitted) for each in stats] == [
        (0, 0, 0, 0)
    ] * 2


async def test_a_fenced_worker_stops_and_its_tasks_return(cluster: LocalCluster, topic: str) -> None:
    cluster.create_topic(f"{topic}.out")
    await fill(cluster, topic, range(3))
    worker = worker_of(cluster, topic, transactional=True, transactional_id=topic, idle_timeout_ms=None)

    @worker.handler
    async def work(record: WorkerRecord) -> None:
        where = {"bootstrap_servers": cluster.bootstrap_servers}
        async with Producer(transactional_id=topic, **where):
            record.send(f"{topic}.out", record.value)

    async with asyncio.timeout(60):
        with pytest.raises(ProducerFenced):
            await worker.run()
    assert await committed(cluster, f"{topic}.out") == Counter()
    assert (await left(cluster, topic)).keys() == set(range(3))


async def test_an_aborted_transaction_is_repeated_without_the_handler(
    cluster: LocalCluster, topic: str
) -> None:
    """Its results are lost before the tasks are acknowledged: the operator has aborted the transaction."""
    cluster.create_topic(f"{topic}.out")
    await fill(cluster, topic, range(30))
    worker = worker_of(cluster, topic, transactional=True, retry=Retry(attempts=1))
    settlement = worker._work._settlement  # type: ignore[attr-defined]
    calls: Counter[int] = Counter()

    @worker.handler
    async def work(record: WorkerRecord) -> None:
        calls[int(record.value)] += 1
        record.send(f"{topic}.out", record.value)

    sent = settlement.producer.send
    failed: list[str] = []

    async def send_once_in_vain(topic: str, *args: Any, **options: Any) -> Any:
        delivery = await sent(topic, *args, **options)
        if not failed:
            failed.append(topic)
            settlement.producer.parts.transaction.fail(TransactionAborted("the operator aborted it"))
        return delivery

    settlement.producer.send = send_once_in_vain
    async with asyncio.timeout(60):
        await worker.run()
    assert failed
    assert calls == await committed(cluster, f"{topic}.out") == Counter(range(30))
    assert await left(cluster, topic) == {}


async def test_a_worker_ends_although_the_cluster_is_silent(cluster: LocalCluster, topic: str) -> None:
    """Results that the cluster does not take in time are given up, and their records are delivered again."""
    await fill(cluster, topic, range(30))
    workers = [
        worker_of(
            cluster, topic, group_id=f"{topic}-{kind}", transactional=kind, idle_timeout_ms=None, drain_s=0.5
        )
        for kind in (False, True)
    ]
    silence = asyncio.Event()
    for worker in workers:
        await begin_at_start(cluster, worker._settings.work.group_id)

        @worker.handler
        async def work(record: WorkerRecord) -> None:
            await silence.wait()
            record.send(topic, record.value)

    # The page says 10.5 s; a request takes 30 s until it fails.
    await end_in_silence(cluster, workers, silence, within_s=15)


async def test_the_rate_limits_starts(cluster: LocalCluster, topic: str) -> None:
    await fill(cluster, topic, range(6))
    worker = worker_of(cluster, topic, rate=Rate(10, burst=1))
    starts: list[float] = []

    @worker.handler
    async def work(record: WorkerRecord) -> None:
        starts.append(time.monotonic())

    async with asyncio.timeout(30):
        await worker.run()
    assert starts[-1] - starts[0] >= 0.45


def test_a_plain_function_runs_in_threads(cluster: LocalCluster, topic: str) -> None:
    asyncio.run(fill(cluster, topic, range(20)))
    worker = ottla.sync.Worker(
        topic,
        group_id=topic,
        source="share",
        bootstrap_servers=cluster.bootstrap_servers,
        idle_timeout_ms=700,
    )
    done: Counter[bytes] = Counter()

    @worker.handler
    def work(record: WorkerRecord) -> None:
        time.sleep(0.01)
        done[record.value] += 1

    worker.run()
    assert done == Counter(b"%d" % number for number in range(20))


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("ordering", "key"),
        ("lane", len),
        ("dead_letter", "letters"),
        ("commit_every_s", 0.1),
        ("max_batch_records", 10),
        ("auto_offset_reset", "earliest"),
        ("max_poll_interval_ms", 1_000),
        ("rate", Rate(1, per_key=True)),
    ],
    ids=lambda value: str(value) if isinstance(value, str) else "",
)
def test_options_of_consumer_groups_are_refused(option: str, value: object) -> None:
    options: dict[str, Any] = {option: value}
    with pytest.raises(ValueError, match=option):
        Worker("tasks", group_id="mailers", source="share", **options)

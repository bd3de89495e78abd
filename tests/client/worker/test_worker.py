"""`Worker` with a real cluster: records are worked on by key, retried, given up, and never lost."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import ottla.sync
from ottla import (
    Admin,
    Consumer,
    ConsumerRecord,
    DeadLetter,
    KafkaError,
    Letter,
    Producer,
    ProducerFenced,
    Rate,
    Reject,
    Retry,
    TopicPartition,
    Worker,
    WorkerRecord,
)
from ottla.client.consumer import stop_within
from ottla.client.exactly_once.output import Output
from ottla.client.worker import settling
from ottla.testing import LocalCluster
from tests.client.worker.silent_cluster import end_before_the_start, end_in_silence

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[3]
PARTITIONS = 4
FAST = Retry(attempts=3, first=0.05, factor=1, most=0.05, jitter=0)


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    settings = {
        "group.min.session.timeout.ms": "1000",
        "group.consumer.min.heartbeat.interval.ms": "100",
        "group.consumer.heartbeat.interval.ms": "100",
    }
    with LocalCluster(settings=settings) as running:
        yield running


@pytest.fixture
def topic(cluster: LocalCluster, request: pytest.FixtureRequest) -> str:
    """Return a new topic, beside which there is `<topic>.dlq`."""
    name: str = request.node.name.translate({ord("["): "-", ord("]"): None})[:150]
    cluster.create_topic(name, partitions=PARTITIONS)
    cluster.create_topic(f"{name}.dlq")
    return name


def worker_of(cluster: LocalCluster, topic: str, **options: Any) -> Worker:
    defaults: dict[str, Any] = {
        "bootstrap_servers": cluster.bootstrap_servers,
        "group_id": topic,
        "idle_timeout_ms": 700,
        "heartbeat_interval_ms": 100,
        "fetch_max_wait_ms": 50,
        "retry": FAST,
        "dead_letter": DeadLetter(f"{topic}.dlq", most_ratio=None),
    }
    if options.get("group_protocol") == "consumer":
        del defaults["heartbeat_interval_ms"]
    return Worker(topic, **(defaults | options))


async def fill(cluster: LocalCluster, topic: str, count: int, keys: int = 10, begin: int = 0) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in range(begin, begin + count):
            await producer.send(topic, b"%d" % number, b"key %d" % (number % keys))


async def read_all(cluster: LocalCluster, topic: str, **options: Any) -> list[ConsumerRecord]:
    """Return all records of a topic."""
    found: list[ConsumerRecord] = []
    async with Consumer(
        topic, bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest", **options
    ) as reader:
        ends = await reader.end_offsets(
            TopicPartition(topic, number) for number in await reader.partitions_for(topic)
        )
        async with asyncio.timeout(30):
            while reader.assignment() != ends.keys():
                await asyncio.sleep(0.01)
            for partition, end in ends.items():
                while await reader.position(partition) < end:
                    for records in (await reader.getmany(timeout_ms=50)).values():
                        found += records
    return found


async def committed(cluster: LocalCluster, topic: str) -> int:
    async with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        offsets = await admin.committed_offsets(topic)
    return sum(offset for partition, offset in offsets.items() if partition.topic == topic)


class History:
    """The starts and ends of a handler, by key, with the promise that they are in order and never overlap."""

    def __init__(self) -> None:
        self.starts: dict[Any, list[int]] = defaultdict(list)
        self.done: list[int] = []
        self.busy: set[Any] = set()
        self.most_busy = 0

    def start(self, record: ConsumerRecord) -> None:
        assert record.key not in self.busy, "two records of a key at a time"
        self.busy.add(record.key)
        self.most_busy = max(self.most_busy, len(self.busy))
        self.starts[record.key].append(record.offset)

    def end(self, record: ConsumerRecord) -> None:
        self.busy.discard(record.key)
        self.done.append(int(record.value))

    def check(self) -> None:
        for key, offsets in self.starts.items():
            assert offsets == sorted(offsets), f"{key!r} started out of order: {offsets}"


def test_a_new_users_program_works_at_the_first_try(cluster: LocalCluster, tmp_path: Path) -> None:
    """The example of the documentation, as a script: it works, ends at SIGTERM, and leaves a letter."""
    for name in ("orders", "orders.dlq"):
        cluster.create_topic(name, partitions=2)
    program = """
        import asyncio

        from ottla import Reject, Retry, Worker

        worker = Worker(
            "orders",
            bootstrap_servers="localhost:9092",
            group_id="billing",
            retry=Retry(attempts=5, first=0.1),
            dead_letter="orders.dlq",
            timeout_s=30,
        )

        @worker.handler
        async def bill(order):
            if order.value == b"":
                raise Reject("empty")
            print("billed", order.value.decode(), flush=True)

        asyncio.run(worker.run())
    """
    script = tmp_path / "billing.py"
    script.write_text(textwrap.dedent(program).replace("localhost:9092", cluster.bootstrap_servers))
    with subprocess.Popen(
        [sys.executable, script],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        text=True,
    ) as running:
        try:

            async def order() -> None:
                async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
                    for value in (b"tea", b"", b"milk"):
                        await producer.send("orders", value, b"customer")

            asyncio.run(order())
            assert running.stdout is not None
            assert [running.stdout.readline().strip() for _ in range(2)] == ["billed tea", "billed milk"]
            running.terminate()
            assert running.wait(20) == 0
        finally:
            running.kill()
    (letter,) = [Letter.of(record) for record in asyncio.run(read_all(cluster, "orders.dlq"))]
    assert (letter.topic, letter.group_id, letter.error_type) == (
        "orders",
        "billing",
        "ottla.Reject",
    )
    assert asyncio.run(committed_in(cluster, "billing")) == 3


async def committed_in(cluster: LocalCluster, group: str) -> int:
    async with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        return sum((await admin.committed_offsets(group)).values())


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_keys_are_worked_on_in_order_and_side_by_side(
    cluster: LocalCluster, topic: str, protocol: str
) -> None:
    await fill(cluster, topic, 300, keys=20)
    worker, history = worker_of(cluster, topic, group_protocol=protocol), History()

    @worker.handler
    async def handle(record: WorkerRecord) -> None:
        history.start(record)
        await asyncio.sleep(0.005)
        if record.attempt == 1 and int(record.value) % 50 == 0:
            history.busy.discard(record.key)
            raise ConnectionError("the first attempt")
        history.end(record)

    await worker.run()
    history.check()
    assert sorted(history.done) == [*range(300)]
    assert history.most_busy > 10
    assert await committed(cluster, topic) == 300
    stats = worker.stats()
    assert (stats.succeeded, stats.retried, stats.letters, stats.held) == (300, 6, 0, 0)


async def test_plain_functions_run_in_threads(cluster: LocalCluster, topic: str) -> None:
    await fill(cluster, topic, 60, keys=30)
    worker, threads, done = worker_of(cluster, topic, concurrency=8), set[int](), []

    @worker.handler
    def handle(record: WorkerRecord) -> None:
        threads.add(threading.get_ident())
        time.sleep(0.01)
        done.append(record.offset)

    await worker.run()
    assert len(done) == 60
    assert 2 <= len(threads) <= 8
    assert threading.get_ident() not in threads
    assert await committed(cluster, topic) == 60


async def test_failures_become_letters_and_the_rest_goes_on(
    cluster: LocalCluster, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(cluster, topic, 40, keys=40)
    worker, attempts = worker_of(cluster, topic, timeout_s=0.3), defaultdict[int, int](int)

    @worker.handler
    async def handle(record: WorkerRecord) -> None:
        number = int(record.value)
        attempts[number] += 1
        if number == 1:
            raise Reject("no")
        if number == 2:
            raise KeyError("customer")
        if number == 3:
            await asyncio.sleep(30)
        if number == 4:
            raise asyncio.CancelledError

    await worker.run()
    letters = {int(record.value): Letter.of(record) for record in await read_all(cluster, f"{topic}.dlq")}
    assert {number: letter.error_type.rpartition(".")[2] for number, letter in letters.items()} == {
        1: "Reject",
        2: "KeyError",
        3: "TimeoutError",
        4: "CancelledError",
    }
    assert "0.3 s" in letters[3].error_text
    assert (letters[1].attempts, letters[2].attempts, attempts[2], attempts[5]) == (1, 3, 3, 1)
    assert letters[2].key == b"key 2"
    assert await committed(cluster, topic) == 40
    reports = [report for report in caplog.records if "becomes a dead letter" in report.getMessage()]
    without_trace = [report.getMessage() for report in reports if report.exc_info is None]
    assert len(reports) == 4
    assert [text.endswith("ottla.Reject: no") for text in without_trace] == [True], (
        "it is no error of the handler"
    )


async def test_a_record_without_a_topic_for_letters_stops_the_worker(
    cluster: LocalCluster, topic: str
) -> None:
    await fill(cluster, topic, 10, keys=10)
    done: list[int] = []

    def of(worker: Worker, *, poison: bool) -> Worker:
        @worker.handler
        async def handle(record: WorkerRecord) -> None:
            if poison and record.value == b"3":
                raise ArithmeticError("three")
            done.append(int(record.value))

        return worker

    options: dict[str, Any] = {"dead_letter": None, "retry": Retry(attempts=1)}
    with pytest.raises(ArithmeticError, match="three") as caught:
        await of(worker_of(cluster, topic, **options), poison=True).run()
    assert "attempt 1" in caught.value.__notes__[0]
    assert sorted(done) == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    await of(worker_of(cluster, topic, **options), poison=False).run()
    assert done[9:] == [3], "finished records beyond the failed one are not worked on again"


async def test_a_worker_whose_every_record_fails_stops(cluster: LocalCluster, topic: str) -> None:
    await fill(cluster, topic, 100, keys=100)
    worker = worker_of(cluster, topic, dead_letter=DeadLetter(f"{topic}.dlq", most_in_a_row=5), concurrency=1)

    @worker.handler
    async def handle(record: WorkerRecord) -> None:
        raise Reject("all of them")

    with pytest.raises(Reject) as caught:
        await worker.run()
    assert any("most_in_a_row" in note for note in caught.value.__notes__)
    assert len(await read_all(cluster, f"{topic}.dlq")) == 5


async def test_finished_records_beyond_a_stuck_one_are_skipped_by_the_next_worker(
    cluster: LocalCluster, topic: str
) -> None:
    await fill(cluster, topic, 50, keys=50)
    first = worker_of(cluster, topic, idle_timeout_ms=None, drain_s=0.1)
    done: list[int] = []

    @first.handler
    async def stuck(record: WorkerRecord) -> None:
        if record.value == b"7":
            await asyncio.sleep(60)
        done.append(int(record.value))
        if len(done) == 49:
            first.stop()

    await first.run()
    second = worker_of(cluster, topic)

    @second.handler
    async def handle(record: WorkerRecord) -> None:
        done.append(int(record.value))

    await second.run()
    assert done[49:] == [7]
    assert await committed(cluster, topic) == 50


@asynccontextmanager
async def running(worker: Worker) -> AsyncIterator[asyncio.Task[None]]:
    """Run a worker in the background, and stop it at the end."""
    task = asyncio.create_task(worker.run())
    try:
        yield task
    finally:
        worker.stop()
        await task


async def until(condition: Any, seconds: float = 20) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    "options",
    [
        {"partition_assignment_strategy": ("range",)},
        {"partition_assignment_strategy": ("cooperative-sticky",)},
        {"group_protocol": "consumer"},
    ],
    ids=["range", "cooperative", "consumer"],
)
async def test_members_join_and_leave(cluster: LocalCluster, topic: str, options: dict[str, Any]) -> None:
    """Records in handlers end before their partitions go to another member: no key overlaps, none is repeated."""
    history = History()

    def member() -> Worker:
        worker = worker_of(cluster, topic, idle_timeout_ms=None, **options)

        @worker.handler
        async def handle(record: WorkerRecord) -> None:
            history.start(record)
            await asyncio.sleep(0.02)
            history.end(record)

        return worker

    await fill(cluster, topic, 600, keys=30)
    async with running(member()):
        await until(lambda: len(history.done) > 60)
        async with running(member()):
            await until(lambda: len(history.done) > 200)
        await until(lambda: len(history.done) >= 600)
    history.check()
    assert sorted(history.done) == [*range(600)]
    assert await committed(cluster, topic) == 600


async def test_stop_lets_handlers_end_and_a_second_signal_cancels_them(
    cluster: LocalCluster, topic: str
) -> None:
    await fill(cluster, topic, 40, keys=40)
    worker = worker_of(cluster, topic, concurrency=8, idle_timeout_ms=None)
    started, ended = [], []

    @worker.handler
    async def handle(record: WorkerRecord) -> None:
        started.append(record.offset)
        if len(started) == 8:
            worker.stop()
        await asyncio.sleep(0.3)
        ended.append(record.offset)

    await worker.run()
    assert len(started) == len(ended) == 8
    slow = worker_of(cluster, topic, concurrency=8, idle_timeout_ms=None)

    @slow.handler
    async def sleep(record: WorkerRecord) -> None:
        started.append(record.offset)
        if len(started) == 16:
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(60)

    begun_s = time.monotonic()
    await slow.run()
    assert time.monotonic() - begun_s < 10
    assert await committed(cluster, topic) == 8


async def test_a_fenced_worker_stops(cluster: LocalCluster, topic: str) -> None:
    await fill(cluster, topic, 3)
    options = {"transactional": True, "transactional_id": topic, "idle_timeout_ms": None}
    worker = worker_of(cluster, topic, **options)

    @worker.handler
    async def handle(record: WorkerRecord) -> None:
        async with Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id=topic):
            await record.send(f"{topic}.dlq", record.value)

    async with asyncio.timeout(30):
        with pytest.raises(ProducerFenced):
            await worker.run()
    assert await committed(cluster, topic) == 0


async def test_workers_end_although_the_cluster_is_silent(cluster: LocalCluster, topic: str) -> None:
    """Results that the cluster does not take in time are given up, and their records are worked on again."""
    await fill(cluster, topic, 100)
    workers = [
        worker_of(
            cluster, topic, group_id=f"{topic}-{kind}", transactional=kind, idle_timeout_ms=None, drain_s=0.5
        )
        for kind in (False, True)
    ]
    silence = asyncio.Event()
    for worker in workers:

        @worker.handler
        async def handle(record: WorkerRecord) -> None:
            await silence.wait()
            await record.send(f"{topic}.dlq", record.value)

    # The page says 10.5 s. Requests and deliveries take 30 s and more until they fail.
    await end_in_silence(cluster, workers, silence, within_s=11)


async def test_workers_end_although_the_cluster_is_silent_at_their_start(
    cluster: LocalCluster, topic: str
) -> None:
    kinds: list[dict[str, Any]] = [{}, {"transactional": True}, {"source": "share"}]
    workers = [
        Worker(topic, bootstrap_servers=cluster.bootstrap_servers, group_id=topic, **kind) for kind in kinds
    ]
    for worker in workers:
        worker.handler(print)
    await end_before_the_start(cluster, workers, within_s=10)


async def test_a_consumer_stops_within_the_time_it_is_given(cluster: LocalCluster, topic: str) -> None:
    await fill(cluster, topic, 10)
    consumer = Consumer(
        topic,
        bootstrap_servers=cluster.bootstrap_servers,
        group_id=topic,
        auto_offset_reset="earliest",
        enable_auto_commit=True,
    )
    await consumer.start()
    async with asyncio.timeout(20):
        await consumer.getone()
        await consumer.getone()
    cluster.pause(1)
    try:
        async with asyncio.timeout(3):
            await stop_within(consumer, 0.2)
    finally:
        cluster.resume(1)


async def test_a_transaction_that_does_not_end_is_left_to_the_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The output waits for the end of its transaction, then its producer waits for the abort."""
    monkeypatch.setattr(settling, "CLOSE_S", 0.05)

    class Silent(Output):
        async def stop(self) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.Event().wait()

    async with asyncio.timeout(3):
        await settling.close_soon(Silent(Producer, replaceable=True))


async def test_memory_is_bounded(cluster: LocalCluster, topic: str) -> None:
    await fill(cluster, topic, 1_000, keys=500)
    worker, most, done = worker_of(cluster, topic, max_records=50, concurrency=4), 0, 0

    @worker.handler
    async def handle(record: WorkerRecord) -> None:
        nonlocal most, done
        most, done = max(most, worker.stats().held), done + 1
        await asyncio.sleep(0)

    await worker.run()
    assert done == 1_000
    assert most <= 50


async def test_deserializers_fail_for_their_record_alone(cluster: LocalCluster, topic: str) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for value in (b"1", b"\xff", b"2"):
            await producer.send(topic, value, b"key", partition=0)
    worker, seen = worker_of(cluster, topic, value_deserializer=bytes.decode, key_deserializer=len), []

    @worker.handler
    async def handle(record: WorkerRecord) -> None:
        seen.append((record.key, record.value))

    await worker.run()
    assert seen == [(3, "1"), (3, "2")]
    (letter,) = [Letter.of(record) for record in await read_all(cluster, f"{topic}.dlq")]
    assert (letter.key, letter.value, letter.attempts) == (b"key", b"\xff", 1)


async def test_sent_records_precede_the_offset(cluster: LocalCluster, topic: str) -> None:
    cluster.create_topic(f"{topic}.out")
    await fill(cluster, topic, 30, keys=3)
    worker = worker_of(cluster, topic)

    @worker.handler
    async def handle(record: WorkerRecord) -> None:
        await record.send(f"{topic}.out", record.value, key=record.key, headers=[("a", b"b")])
        if record.attempt == 1 and record.value == b"9":
            raise ConnectionError
        if record.value == b"8":
            record.send(f"{topic}.out", b"x" * 2_000_000)

    await worker.run()
    sent = await read_all(cluster, f"{topic}.out")
    assert sorted(int(record.value) for record in sent) == [number for number in range(30) if number != 8]
    (letter,) = [Letter.of(record) for record in await read_all(cluster, f"{topic}.dlq")]
    assert (letter.value, "cannot be sent" in letter.error_text) == (b"8", True)


async def test_rates_and_lanes(cluster: LocalCluster, topic: str) -> None:
    await fill(cluster, topic, 30, keys=30)
    worker = worker_of(cluster, topic, rate=Rate(30, burst=1), lane=lambda record: record.value[-1:])
    starts: list[float] = []

    @worker.handler
    async def handle(record: WorkerRecord) -> None:
        starts.append(time.monotonic())

    await worker.run()
    assert len(starts) == 30
    assert starts[-1] - starts[0] > 0.9


async def test_base_exceptions_end_the_worker_and_their_record_counts_as_unfinished(
    cluster: LocalCluster, topic: str
) -> None:
    await fill(cluster, topic, 5, keys=1)
    worker = worker_of(cluster, topic)

    @worker.handler
    async def handle(record: WorkerRecord) -> None:
        if record.value == b"3":
            raise SystemExit(7)

    with pytest.raises(SystemExit):
        await worker.run()
    assert await committed(cluster, topic) == 3


async def test_a_handler_that_blocks_the_loop_is_reported(
    cluster: LocalCluster, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(cluster, topic, 1)
    worker = worker_of(cluster, topic)

    @worker.handler
    async def blocking(record: WorkerRecord) -> None:
        time.sleep(1.8)  # noqa: ASYNC251 - the mistake that is tested

    await worker.run()
    (report,) = [each.getMessage() for each in caplog.records if "blocked" in each.message]
    assert "blocking" in report
    assert "time.sleep(1.8)" in report


async def test_a_handler_in_a_thread_that_never_ends_is_left_behind(
    cluster: LocalCluster, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(cluster, topic, 1)
    worker = worker_of(cluster, topic, drain_s=0.1, idle_timeout_ms=None)
    release = threading.Event()

    @worker.handler
    def endless(record: WorkerRecord) -> None:
        worker.stop()
        assert record.cancelled.wait(20)
        release.wait(20)

    try:
        async with asyncio.timeout(10):
            await worker.run()
    finally:
        release.set()
    assert await committed(cluster, topic) == 0
    assert any("left behind" in record.message for record in caplog.records)


async def test_results_of_a_handler_have_no_effect_but_a_generator_is_refused(
    cluster: LocalCluster, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(cluster, topic, 3, keys=1)
    worker = worker_of(cluster, topic)

    @worker.handler
    async def handle(record: WorkerRecord) -> Any:
        return (number for number in range(3)) if record.value == b"1" else "junk"

    await worker.run()
    (letter,) = [Letter.of(record) for record in await read_all(cluster, f"{topic}.dlq")]
    assert (letter.value, letter.error_type) == (b"1", "TypeError")
    assert len([record for record in caplog.records if "has no effect" in record.message]) == 1


async def test_a_missing_topic_for_letters_stops_the_worker_before_the_offset(
    cluster: LocalCluster, topic: str
) -> None:
    await fill(cluster, topic, 1)
    worker = worker_of(cluster, topic, dead_letter="no such topic!", max_block_ms=300)

    @worker.handler
    async def handle(record: WorkerRecord) -> None:
        raise Reject("no")

    with pytest.raises(KafkaError):
        await worker.run()
    assert await committed(cluster, topic) == 0


async def test_foreign_metadata_is_dropped_with_a_warning(
    cluster: LocalCluster, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    from ottla import OffsetAndMetadata

    await fill(cluster, topic, 8, keys=8)
    partition = TopicPartition(topic, 0)
    async with Consumer(bootstrap_servers=cluster.bootstrap_servers, group_id=topic) as other:
        other.assign([partition])
        await other.commit({partition: OffsetAndMetadata(0, "b64:bm90IG91cnM=")})
    worker, done = worker_of(cluster, topic), []

    @worker.handler
    async def handle(record: WorkerRecord) -> None:
        done.append(record.value)

    with caplog.at_level(logging.WARNING):
        await worker.run()
    assert len(done) == 8
    assert any("another format" in record.getMessage() for record in caplog.records)


async def test_a_worker_is_run_once_and_needs_a_handler(cluster: LocalCluster, topic: str) -> None:
    worker = worker_of(cluster, topic, idle_timeout_ms=50)
    with pytest.raises(RuntimeError, match=r"@worker\.handler"):
        await worker.run()

    @worker.handler
    async def handle(record: WorkerRecord) -> None:
        pass

    await worker.run()
    with pytest.raises((RuntimeError, KafkaError), match="stopped"):
        await worker.run()
    worker.stop()
    assert worker.stats().held == 0


async def test_a_cancelled_run_closes_all(cluster: LocalCluster, topic: str) -> None:
    await fill(cluster, topic, 5)
    worker = worker_of(cluster, topic, idle_timeout_ms=None)
    cancelled = asyncio.Event()

    @worker.handler
    async def handle(record: WorkerRecord) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    task = asyncio.create_task(worker.run())
    await until(lambda: worker.stats().in_flight)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert cancelled.is_set()


async def test_long_delays_go_through_the_retry_topic(cluster: LocalCluster, topic: str) -> None:
    """The delayed record holds neither its key nor its partition, and keeps its attempts over a restart."""
    cluster.create_topic(f"{topic}.retry", partitions=PARTITIONS)
    await fill(cluster, topic, 6, keys=1)
    retry = Retry(attempts=3, first=1, factor=1, most=1, jitter=0, most_held_s=0)
    done: list[int] = []
    seen: list[tuple[bytes, int, str]] = []

    def member(idle_timeout_ms: int) -> Worker:
        worker = worker_of(
            cluster, topic, retry=retry, retry_topic=True, idle_timeout_ms=idle_timeout_ms, drain_s=0
        )

        @worker.handler
        async def handle(record: WorkerRecord) -> None:
            seen.append((record.value, record.attempt, record.topic))
            if record.value == b"2":
                raise ConnectionError
            done.append(int(record.value))
            if len(done) == 5:
                worker.stop()

        return worker

    await member(20_000).run()
    assert done == [0, 1, 3, 4, 5]
    await member(2_500).run()
    assert [attempt for value, attempt, _ in seen if value == b"2"] == [1, 2, 3]
    assert {where for value, attempt, where in seen if attempt > 1} == {f"{topic}.retry"}
    (letter,) = [Letter.of(record) for record in await read_all(cluster, f"{topic}.dlq")]
    assert (letter.attempts, letter.value, letter.topic) == (3, b"2", topic)


def test_the_synchronous_worker(cluster: LocalCluster, topic: str) -> None:
    asyncio.run(fill(cluster, topic, 20, keys=5))
    worker = ottla.sync.Worker(
        topic, bootstrap_servers=cluster.bootstrap_servers, group_id=topic, heartbeat_interval_ms=100
    )
    done: list[int] = []

    @worker.handler
    def handle(record: WorkerRecord) -> None:
        done.append(int(record.value))
        if len(done) == 20:
            os.kill(os.getpid(), signal.SIGTERM)

    worker.run()
    assert sorted(done) == [*range(20)]
    assert worker.stats().succeeded == 20
    assert asyncio.run(committed(cluster, topic)) == 20


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"concurrency": 0}, "concurrency is 1 or more"),
    ({"concurrency": 1.5}, "concurrency is a whole number"),
    ({"timeout_s": 0}, "timeout_s is above 0"),
    ({"timeout_s": -1.0}, "timeout_s is above 0"),
    ({"timeout_s": float("nan")}, "timeout_s is above 0"),
    ({"drain_s": -1}, "drain_s is 0 or more"),
    ({"commit_every_s": 0}, "commit_every_s is above 0"),
    ({"commit_every_s": 11}, "commit_every_s is below transaction_timeout_ms"),
    ({"max_bytes": 0}, "max_bytes is 1 or more"),
    ({"max_records": -1}, "max_records is 1 or more"),
    ({"max_batch_records": 0}, "max_batch_records is 1 or more"),
    ({"idle_timeout_ms": 0}, "idle_timeout_ms is 1 to"),
    ({"ordering": "keys"}, "ordering is key, partition or none"),
    ({"null_keys": "none"}, "null_keys is partition or free"),
    ({"executor": "fibers"}, "executor is threads or processes"),
    ({"lane": 5}, "lane is a function"),
    ({"lane": len, "ordering": "key"}, "lane takes the place of ordering"),
    ({"retry": 5}, "retry is a Retry"),
    ({"retry": Retry(attempts=9, most=4_000, factor=9)}, "need retry_topic=True"),
    ({"dead_letter": 5}, "dead_letter is a topic"),
    ({"dead_letter": ""}, "DeadLetter: topic"),
    ({"dead_letter": "orders.retry"}, "no retry topic"),
    ({"rate": 100}, "rate is a Rate"),
    ({"rate": [Rate(1), 100]}, "rate is a Rate"),
    ({"dead_letter": "orders"}, "dead_letter is a topic that the worker does not read"),
    ({"group_id": ""}, "group_id is a text"),
    ({"transactional_id": "mine"}, "transactional_id needs transactional=True"),
    ({"concurency": 5}, "nearest is 'concurrency'"),
    ({"enable_auto_commit": True}, "no option 'enable_auto_commit'"),
]


@pytest.mark.parametrize(("wrong", "reason"), MISTAKES, ids=lambda value: str(value)[:40])
def test_wrong_settings_are_refused_by_name(wrong: dict[str, Any], reason: str) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(reason)):
        Worker("orders", **({"group_id": "billing"} | wrong))


def test_topics_and_handlers_are_checked() -> None:
    with pytest.raises(TypeError, match="needs a topic"):
        Worker(group_id="billing")
    with pytest.raises(TypeError, match=r"one by one: Worker\('orders'\)"):
        Worker(["orders"], group_id="billing")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="group_id"):
        Worker("orders")  # type: ignore[call-arg]
    worker = Worker("orders", group_id="billing")

    def generator(record: WorkerRecord) -> Iterator[None]:
        yield

    def without_record() -> None:
        pass

    for wrong, reason in ((5, "function"), (generator, "yield"), (without_record, "one argument")):
        with pytest.raises(TypeError, match=reason):
            worker.handler(wrong)  # type: ignore[type-var]
    assert worker.handler(print) is print
    with pytest.raises(RuntimeError, match="has a handler"):
        worker.handler(print)

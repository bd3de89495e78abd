"""Workers that are killed, and workers with transactions: nothing is lost, and outputs count exactly once."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla import Admin, Consumer, KafkaError, Producer, Reject, Retry, Worker, WorkerRecord
from ottla.client.exactly_once.output import Output
from ottla.testing import LocalCluster
from tests.client.worker.notes import Notes

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[3]
PROGRAM = "tests.client.working_program"
PARTITIONS = 4
CONCURRENCY = 8


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
    """Return a new topic, beside which there are `<topic>.out` and `<topic>.dlq`."""
    name: str = request.node.name.translate({ord("["): "-", ord("]"): None})[:150]
    for end in ("", ".out", ".dlq"):
        cluster.create_topic(f"{name}{end}", partitions=PARTITIONS)
    return name


async def fill(cluster: LocalCluster, topic: str, numbers: range, keys: int = 20) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in numbers:
            await producer.send(topic, b"%d" % number, b"%d" % (number % keys))


async def outputs(
    cluster: LocalCluster, topic: str, at_least: int, seconds: float = 60
) -> dict[bytes, list[int]]:
    """Return the values of each key in the topic of outputs, for readers of committed records."""
    found: dict[bytes, list[int]] = defaultdict(list)
    async with (
        Consumer(
            f"{topic}.out",
            bootstrap_servers=cluster.bootstrap_servers,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            fetch_max_wait_ms=50,
        ) as reader,
        asyncio.timeout(seconds),
    ):
        while sum(map(len, found.values())) < at_least:
            for records in (await reader.getmany(timeout_ms=100)).values():
                for record in records:
                    found[record.key].append(int(record.value))
        for partition, end in (await reader.end_offsets(reader.assignment())).items():
            while await reader.position(partition) < end:
                for records in (await reader.getmany(timeout_ms=100)).values():
                    for record in records:
                        found[record.key].append(int(record.value))
    return found


async def committed(cluster: LocalCluster, topic: str) -> int:
    async with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        return sum((await admin.committed_offsets(topic)).values())


def start(cluster: LocalCluster, topic: str, notes: Path, *rest: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", PROGRAM, cluster.bootstrap_servers, topic, str(notes), *rest]
    return subprocess.Popen(command, cwd=ROOT)


def wait_for(condition: Any, seconds: float = 40) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.02)


def test_a_killed_worker_loses_nothing_and_repeats_few(
    cluster: LocalCluster, topic: str, tmp_path: Path
) -> None:
    count, kills = 1_500, 4
    asyncio.run(fill(cluster, topic, range(count)))
    files = [tmp_path / f"{number}.notes" for number in range(kills + 1)]
    for number, file in enumerate(files):
        program = start(cluster, topic, file)
        try:
            before = len(set(Notes(*files).ended))
            goal = count if number == kills else min(count, before + 200)
            wait_for(lambda goal=goal: len(set(Notes(*files).ended)) >= goal)
            if number == kills:
                wait_for(lambda: asyncio.run(committed(cluster, topic)) == count)
        finally:
            program.kill()
            program.wait()
    notes = Notes(*files)
    notes.check_order()
    assert set(notes.ended) == {*range(count)}
    repeated = len(notes.ended) - count
    assert repeated <= kills * 3 * CONCURRENCY, (
        "records in handlers, and those finished since the last commit"
    )


def test_outputs_count_exactly_once_in_spite_of_kills(
    cluster: LocalCluster, topic: str, tmp_path: Path
) -> None:
    count, seed = 1_200, random.randrange(1 << 30)
    print("seed", seed)
    chance = random.Random(seed)
    asyncio.run(fill(cluster, topic, range(count)))
    files = [tmp_path / f"{number}.notes" for number in range(5)]
    programs = [start(cluster, topic, file, "transactional") for file in files[:2]]
    try:
        for file in files[2:]:
            before = len(set(Notes(*files).ended))
            wait_for(lambda before=before: len(set(Notes(*files).ended)) >= min(count, before + 150))
            time.sleep(chance.random() * 0.2)
            victim = programs.pop(chance.randrange(len(programs)))
            victim.kill()
            victim.wait()
            programs.append(start(cluster, topic, file, "transactional"))
        found = asyncio.run(outputs(cluster, topic, count))
    finally:
        for program in programs:
            program.kill()
            program.wait()
    assert found == {
        b"%d" % key: [number for number in range(count) if number % 20 == key] for key in range(20)
    }


def worker_of(cluster: LocalCluster, topic: str, **options: Any) -> Worker:
    defaults: dict[str, Any] = {
        "bootstrap_servers": cluster.bootstrap_servers,
        "group_id": topic,
        "idle_timeout_ms": 700,
        "heartbeat_interval_ms": 100,
        "fetch_max_wait_ms": 50,
        "retry": Retry(attempts=3, first=0.02, factor=1, most=0.02),
        "dead_letter": f"{topic}.dlq",
        "transactional": True,
        "commit_every_s": 0.05,
    }
    if options.get("group_protocol") == "consumer":
        del defaults["heartbeat_interval_ms"]
    return Worker(topic, **(defaults | options))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_failed_attempt_leaves_no_output(cluster: LocalCluster, topic: str, protocol: str) -> None:
    await fill(cluster, topic, range(100))
    worker = worker_of(cluster, topic, group_protocol=protocol)

    @worker.handler
    async def handle(record: WorkerRecord) -> None:
        await record.send(f"{topic}.out", record.value, key=record.key)
        if record.value == b"50":
            raise Reject("fifty")
        if record.attempt == 1 and int(record.value) % 10 == 0:
            raise ConnectionError

    await worker.run()
    found = await outputs(cluster, topic, 99)
    assert sorted(number for numbers in found.values() for number in numbers) == [
        number for number in range(100) if number != 50
    ]
    async with (
        Consumer(
            f"{topic}.dlq",
            bootstrap_servers=cluster.bootstrap_servers,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        ) as letters,
        asyncio.timeout(10),
    ):
        assert (await letters.getone()).value == b"50"
    assert await committed(cluster, topic) == 100


async def test_aborted_transactions_are_repeated_without_the_handler(
    cluster: LocalCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(cluster, topic, range(60))
    commit, refused, calls = Output.commit, 0, 0

    async def sometimes(self: Output, *arguments: Any) -> None:
        nonlocal refused
        if refused < 3:
            refused += 1
            from ottla import ErrorCode

            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, "for the test")
        await commit(self, *arguments)

    monkeypatch.setattr(Output, "commit", sometimes)
    worker = worker_of(cluster, topic)

    @worker.handler
    async def handle(record: WorkerRecord) -> None:
        nonlocal calls
        calls += 1
        await record.send(f"{topic}.out", record.value, key=record.key)

    await worker.run()
    found = await outputs(cluster, topic, 60)
    assert sorted(number for numbers in found.values() for number in numbers) == [*range(60)]
    assert (refused, calls) == (3, 60)


@pytest.mark.parametrize(
    "options",
    [
        {"partition_assignment_strategy": ("range",)},
        {"partition_assignment_strategy": ("cooperative-sticky",)},
        {"group_protocol": "consumer"},
    ],
    ids=["range", "cooperative", "consumer"],
)
async def test_members_with_transactions_join_and_leave(
    cluster: LocalCluster, topic: str, options: dict[str, Any]
) -> None:
    await fill(cluster, topic, range(800))

    def member() -> Worker:
        worker = worker_of(cluster, topic, idle_timeout_ms=None, **options)

        @worker.handler
        async def handle(record: WorkerRecord) -> None:
            await asyncio.sleep(0.05)
            await record.send(f"{topic}.out", record.value, key=record.key)

        return worker

    steady = member()
    task = asyncio.create_task(steady.run())
    for _ in range(2):
        guest = member()
        visit = asyncio.create_task(guest.run())
        async with asyncio.timeout(20):
            while not guest.stats().partitions:
                await asyncio.sleep(0.01)
        guest.stop()
        await visit
    found = await outputs(cluster, topic, 800)
    steady.stop()
    await task
    assert found == {
        b"%d" % key: [number for number in range(800) if number % 20 == key] for key in range(20)
    }
    assert await committed(cluster, topic) == 800


async def test_a_finished_record_beyond_a_stuck_one_counts_in_the_transaction(
    cluster: LocalCluster, topic: str
) -> None:
    await fill(cluster, topic, range(30), keys=30)
    first, done = worker_of(cluster, topic, idle_timeout_ms=None, drain_s=0.1), []

    @first.handler
    async def stuck(record: WorkerRecord) -> None:
        if record.value == b"7":
            await asyncio.sleep(60)
        done.append(int(record.value))
        await record.send(f"{topic}.out", record.value, key=record.key)
        if len(done) == 29:
            first.stop()

    await first.run()
    second = worker_of(cluster, topic)

    @second.handler
    async def handle(record: WorkerRecord) -> None:
        done.append(int(record.value))
        await record.send(f"{topic}.out", record.value, key=record.key)

    await second.run()
    assert done[29:] == [7]
    found = await outputs(cluster, topic, 30)
    assert sorted(number for numbers in found.values() for number in numbers) == [*range(30)]
    assert found[b"7"] == [7]

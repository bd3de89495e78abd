"""Handlers in processes: their outputs, errors, deaths and timeouts."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla import Consumer, Letter, Producer, Retry, Worker, WorkerRecord
from ottla.testing import LocalCluster
from tests.client.worker.handlers_of_processes import compute, copy

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[3]
COUNT = 100
KEYS = 10
KILLS_S = 240
"""Time for records whose processes are killed about 13 times. Each process loads its modules again."""
PROCESS = "ottla-worker-handler"
"""Name of a worker's processes. Other tests may have processes as well."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as running:
        for name in ("jobs", "jobs.out", "jobs.dlq"):
            running.create_topic(name)
        yield running


async def read(cluster: LocalCluster, topic: str, count: int, timeout_s: float = 60) -> list[Any]:
    found: list[Any] = []
    async with (
        Consumer(
            topic,
            bootstrap_servers=cluster.bootstrap_servers,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        ) as reader,
        asyncio.timeout(timeout_s),
    ):
        while len(found) < count:
            for records in (await reader.getmany(timeout_ms=50)).values():
                found += records
    return found


async def test_handlers_run_in_processes(cluster: LocalCluster) -> None:
    """A process that dies or hangs costs its record an attempt, and no other record anything."""
    values = [b"plain", b"reject", b"die", b"hang", b"unpicklable", *([b"plain"] * 7)]
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number, value in enumerate(values):
            await producer.send("jobs", value, b"%d" % number)
    worker = Worker(
        "jobs",
        bootstrap_servers=cluster.bootstrap_servers,
        group_id="computers",
        executor="processes",
        concurrency=2,
        timeout_s=3,
        retry=Retry(attempts=1),
        dead_letter="jobs.dlq",
        idle_timeout_ms=500,
    )
    worker.handler(compute)
    await worker.run()
    processes = {int(record.value) for record in await read(cluster, "jobs.out", 8)}
    assert os.getpid() not in processes
    letters = {record.value: Letter.of(record) for record in await read(cluster, "jobs.dlq", 4)}
    assert {value: letter.error_type.rpartition(".")[2] for value, letter in letters.items()} == {
        b"reject": "Reject",
        b"die": "ProcessDied",
        b"hang": "TimeoutError",
        b"unpicklable": "RuntimeError",
    }
    assert "exit code 9" in letters[b"die"].error_text
    assert letters[b"unpicklable"].error_text == "Unpicklable: 1 and 2"
    assert worker.stats().held == 0


@pytest.fixture
def filled(cluster: LocalCluster, request: pytest.FixtureRequest) -> str:
    """Return a new topic with COUNT numbers in it, beside which there is `<topic>.out`."""
    name: str = request.node.name
    for end in ("", ".out"):
        cluster.create_topic(f"{name}{end}", partitions=2)

    async def fill() -> None:
        async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            for number in range(COUNT):
                await producer.send(name, b"%d" % number, b"%d" % (number % KEYS))

    asyncio.run(fill())
    return name


def check_copies(records: list[Any]) -> None:
    """Check that each number is there once, and those of a key in their order."""
    found = defaultdict[bytes, list[int]](list)
    for record in records:
        found[record.key].append(int(record.value))
    assert found == {b"%d" % key: list(range(key, COUNT, KEYS)) for key in range(KEYS)}


@pytest.mark.timeout(KILLS_S + 60)
def test_a_killed_process_of_a_handler_leaves_no_output(cluster: LocalCluster, filled: str) -> None:
    """Processes die after they have sent a record, and at any other time: all outputs count exactly once."""
    seed = random.randrange(1 << 30)
    print("seed", seed)
    chance = random.Random(seed)
    worker = Worker(
        filled,
        bootstrap_servers=cluster.bootstrap_servers,
        group_id=filled,
        executor="processes",
        concurrency=2,
        transactional=True,
        retry=Retry(attempts=100, first=0.01, factor=1, most=0.01),
    )
    worker.handler(copy)

    async def kill() -> None:
        """Kill a process after some records each, since a process takes long to start on a busy machine."""
        while True:
            goal = worker.stats().succeeded + chance.randint(5, 20)
            while worker.stats().succeeded < goal:
                await asyncio.sleep(0.005)
            await asyncio.sleep(chance.random() * 0.03)
            processes = [each for each in multiprocessing.active_children() if each.name == PROCESS]
            if processes:
                chance.choice(processes).kill()

    async def work() -> None:
        async with asyncio.TaskGroup() as tasks:
            killing = tasks.create_task(kill())
            tasks.create_task(worker.run())
            await read(cluster, f"{filled}.out", COUNT, KILLS_S)
            worker.stop()
            killing.cancel()

    asyncio.run(work())
    check_copies(asyncio.run(read(cluster, f"{filled}.out", COUNT)))
    assert worker.stats().failed >= COUNT // 20


def test_outputs_of_processes_count_exactly_once_if_their_worker_is_killed(
    cluster: LocalCluster, filled: str
) -> None:
    command = [sys.executable, "-m", "tests.client.worker.program_with_processes"]
    orphans: set[int] = set()
    for least in (COUNT // 3, COUNT):
        program = subprocess.Popen([*command, cluster.bootstrap_servers, filled], cwd=ROOT)
        try:
            asyncio.run(read(cluster, f"{filled}.out", least))
            orphans |= children(program.pid)
        finally:
            program.kill()
            program.wait()
    check_copies(asyncio.run(read(cluster, f"{filled}.out", COUNT)))
    assert len(orphans) >= 3
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{orphan}/cmdline").exists() for orphan in orphans):
        assert time.monotonic() < deadline, "a process of a handler outlives its worker"
        time.sleep(0.02)


def children(pid: int) -> set[int]:
    """Return the processes that a process has started."""
    return {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()} | {
        int(child)
        for task in Path(f"/proc/{pid}/task").iterdir()
        for child in (task / "children").read_text().split()
    }


def test_handlers_that_cannot_be_imported_are_refused() -> None:
    worker = Worker("jobs", group_id="computers", executor="processes")

    async def coroutine(record: WorkerRecord) -> None:
        pass

    with pytest.raises(TypeError, match="async"):
        worker.handler(coroutine)
    worker.handler(lambda record: None)
    with pytest.raises(TypeError, match="at the top of a module"):
        asyncio.run(worker.run())

"""Handlers in processes: their outputs, errors, deaths and timeouts."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import Any

import pytest

from ottla import Consumer, Letter, Producer, Retry, Worker, WorkerRecord
from ottla.testing import LocalCluster
from tests.client.worker.handlers_of_processes import compute

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as running:
        for name in ("jobs", "jobs.out", "jobs.dlq"):
            running.create_topic(name)
        yield running


async def read(cluster: LocalCluster, topic: str, count: int) -> list[Any]:
    found: list[Any] = []
    async with (
        Consumer(topic, bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as reader,
        asyncio.timeout(20),
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


def test_handlers_that_cannot_be_imported_are_refused() -> None:
    worker = Worker("jobs", group_id="computers", executor="processes")

    async def coroutine(record: WorkerRecord) -> None:
        pass

    with pytest.raises(TypeError, match="async"):
        worker.handler(coroutine)
    worker.handler(lambda record: None)
    with pytest.raises(TypeError, match="at the top of a module"):
        asyncio.run(worker.run())

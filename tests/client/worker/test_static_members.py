"""Workers with `group_instance_id`: a restart within the session timeout moves no partition, and repeats no record."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ottla import GROUP_RESOURCE, Admin, KafkaError, Producer, TopicPartition, Worker, WorkerRecord
from ottla.testing import LocalCluster

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[3]
PROGRAM = "tests.client.working_program"
PARTITIONS, KEYS, CONCURRENCY = 4, 40, 8
PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer"])


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    settings = {
        "group.consumer.min.heartbeat.interval.ms": "100",
        "group.consumer.heartbeat.interval.ms": "100",
        "group.consumer.min.session.timeout.ms": "1000",
    }
    with LocalCluster(settings=settings) as running:
        yield running


@pytest.fixture
def topic(cluster: LocalCluster, request: pytest.FixtureRequest) -> str:
    """Return a new topic, beside which there are `<topic>.out` and `<topic>.dlq`."""
    name: str = request.node.name.translate({ord("["): "-", ord("]"): None})
    for end in ("", ".out", ".dlq"):
        cluster.create_topic(f"{name}{end}", partitions=PARTITIONS)
    return name


class Desk:
    """A worker with a name that outlives it, and its records."""

    def __init__(self, cluster: LocalCluster, topic: str, name: str, protocol: str) -> None:
        self.options: dict[str, Any] = {
            "bootstrap_servers": cluster.bootstrap_servers,
            "group_id": topic,
            "group_instance_id": name,
            "group_protocol": protocol,
            "fetch_max_wait_ms": 50,
            "concurrency": CONCURRENCY,
        }
        if protocol == "classic":
            self.options |= {"heartbeat_interval_ms": 100, "session_timeout_ms": 20_000}
        self.topic = topic
        self.worked: list[int] = []
        self.partitions: set[int] = set()

    def worker(self) -> Worker:
        """Return a new worker with this name."""
        worker = Worker(self.topic, **self.options)

        @worker.handler
        async def handle(record: WorkerRecord) -> None:
            self.partitions.add(record.partition)
            await asyncio.sleep(0.01)
            self.worked.append(int(record.value))

        return worker

    @asynccontextmanager
    async def manned(self) -> AsyncIterator[Worker]:
        """Run a worker with this name, and stop it at the end."""
        worker = self.worker()
        running = asyncio.create_task(worker.run())
        try:
            yield worker
        finally:
            worker.stop()
            await running


async def fill(cluster: LocalCluster, topic: str, numbers: range) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in numbers:
            await producer.send(topic, b"%d" % number, b"%d" % (number % KEYS))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(40):
        while not condition():
            await asyncio.sleep(0.01)


async def members(cluster: LocalCluster, topic: str) -> dict[str | None, set[TopicPartition]]:
    """Return the partitions of the members, by their `group_instance_id`."""
    async with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        (described,) = await admin.describe_groups([topic])
    return {member.instance_id: set(member.partitions) for member in described.members}


@PROTOCOLS
async def test_a_worker_that_restarts_gets_its_partitions_back(
    cluster: LocalCluster, topic: str, protocol: str
) -> None:
    """The other member's partitions stay, too, and no record is worked on twice."""
    count = 1_200
    steady, restarted = (Desk(cluster, topic, name, protocol) for name in ("steady", "restarted"))
    async with steady.manned() as other:
        async with restarted.manned() as first:
            await until(lambda: other.stats().partitions == first.stats().partitions == PARTITIONS // 2)
            before = await members(cluster, topic)
            await fill(cluster, topic, range(count))
            await until(lambda: len(restarted.worked) > 50)
        ended = len(restarted.worked)
        assert await members(cluster, topic) == before, "a static member that stops does not leave"
        async with restarted.manned() as second:
            await until(lambda: second.stats().partitions == PARTITIONS // 2)
            await until(lambda: len(restarted.worked) > ended)
            await until(lambda: len(steady.worked) + len(restarted.worked) >= count)
            assert await members(cluster, topic) == before
        assert other.stats().partitions == PARTITIONS // 2
    assert sorted(steady.worked + restarted.worked) == [*range(count)]
    assert steady.partitions.isdisjoint(restarted.partitions)


class Program:
    """The program of a worker named "killed", which a service manager starts again whenever it ends."""

    def __init__(self, cluster: LocalCluster, topic: str, protocol: str, folder: Path) -> None:
        self._cluster = cluster
        self._topic = topic
        self._protocol = protocol
        self._folder = folder
        self.starts = 0

    def start(self) -> subprocess.Popen[bytes]:
        """Start it, with its notes in a new file."""
        self.starts += 1
        notes = self._folder / f"{self.starts}.notes"
        rest = (self._cluster.bootstrap_servers, self._topic, str(notes), "static", self._protocol)
        return subprocess.Popen([sys.executable, "-m", PROGRAM, *rest], cwd=ROOT, stderr=subprocess.DEVNULL)

    @property
    def worked(self) -> list[int]:
        """The records that its handlers have ended."""
        lines = [line.split() for file in self._folder.iterdir() for line in file.read_text().splitlines()]
        return [int(line[2]) for line in lines if len(line) == 4 and line[0] == "end"]


async def test_a_killed_worker_of_a_classic_group_gets_its_partitions_back(
    cluster: LocalCluster, topic: str, tmp_path: Path
) -> None:
    """At most the records in handlers, and those finished since the last commit, are worked on again."""
    count, steady = 1_200, Desk(cluster, topic, "steady", "classic")
    program = Program(cluster, topic, "classic", tmp_path)
    async with steady.manned() as other:
        running = program.start()
        try:
            await until(lambda: other.stats().partitions == PARTITIONS // 2)
            before = await members(cluster, topic)
            await fill(cluster, topic, range(count))
            await until(lambda: len(program.worked) > 50)
            running.kill()
            running.wait()
            assert await members(cluster, topic) == before, "its session goes on"
            running = program.start()
            await until(lambda: {*steady.worked, *program.worked} == {*range(count)})
            assert await members(cluster, topic) == before
            assert other.stats().partitions == PARTITIONS // 2
            running.terminate()
            assert await asyncio.to_thread(running.wait, 30) == 0
        finally:
            running.kill()
            running.wait()
    assert set(steady.worked).isdisjoint(program.worked)
    assert len(steady.worked) + len(program.worked) - count <= 3 * CONCURRENCY


async def test_a_killed_worker_of_a_consumer_group_waits_for_the_end_of_its_session(
    cluster: LocalCluster, topic: str, tmp_path: Path
) -> None:
    """The coordinator refuses the name until then (KIP-848), so that the service manager starts the worker again."""
    count, steady = 1_200, Desk(cluster, topic, "steady", "consumer")
    program = Program(cluster, topic, "consumer", tmp_path)
    async with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        await admin.alter_configs(GROUP_RESOURCE, topic, {"consumer.session.timeout.ms": 3_000})
    async with steady.manned() as other:
        running = program.start()
        try:
            await until(lambda: other.stats().partitions == PARTITIONS // 2)
            await fill(cluster, topic, range(count))
            await until(lambda: len(program.worked) > 50)
            running.kill()
            running.wait()
            async with asyncio.timeout(40):
                with pytest.raises(KafkaError, match="UNRELEASED_INSTANCE_ID"):
                    await Desk(cluster, topic, "killed", "consumer").worker().run()
            await until(lambda: other.stats().partitions == PARTITIONS)
            running = program.start()
            await until(lambda: other.stats().partitions == PARTITIONS // 2)
            await fill(cluster, topic, range(count, 2 * count))
            await until(lambda: {*steady.worked, *program.worked} == {*range(2 * count)})
        finally:
            running.kill()
            running.wait()
    assert len(steady.worked) + len(program.worked) - 2 * count <= 3 * CONCURRENCY

"""Flink copies a topic exactly once: it is killed between a checkpoint and the commits of that, with a broker."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.client.admin import Admin
from ottla.client.admin.records import LATEST
from ottla.client.records import TopicPartition as Partition
from tests.cluster import RunningCluster, wait_until
from tests.programs.flink import FlinkJob
from tests.programs.jvm import needs_jdk
from tests.programs.topics import create_topics

pytestmark = [pytest.mark.java, needs_jdk, pytest.mark.timeout(900)]
PARTITIONS = 3


class Lines:
    """A thread that writes numbered lines to "given" until the block ends."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 2}
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write, name="lines")
        self.count = 0
        self.failed: list[object] = []

    def __enter__(self) -> Lines:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(60) == 0
        assert self.failed == []

    def _write(self) -> None:
        for number in itertools.count(1):
            if self._stop.wait(0.005):
                return
            self._producer.produce("given", f"line{number}", on_delivery=self._delivered)
            self._producer.poll(0)
            self.count = number

    def _delivered(self, error: object, _message: object) -> None:
        if error is not None:
            self.failed.append(error)


class Copied:
    """How often each line is committed in "copied" so far."""

    def __init__(self, bootstrap: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "reader",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
            }
        )
        self._consumer.assign([TopicPartition("copied", number, 0) for number in range(PARTITIONS)])
        self.times: Counter[str] = Counter()

    def read(self) -> int:
        """Read on; how many different lines there are."""
        for message in self._consumer.consume(10_000, 0.2):
            assert message.error() is None, message.error()
            value = message.value()
            assert value is not None
            self.times[value.decode()] += 1
        return len(self.times)

    def wait_for(self, count: int, job: FlinkJob) -> None:
        """Return once there are `count` while the job runs."""
        job.wait_until(lambda: self.read() >= count, f"{count} lines")

    def wait_for_more(self, count: int, job: FlinkJob) -> None:
        """Return once there are so many more than now."""
        self.wait_for(self.read() + count, job)


@pytest.fixture(autouse=True)
def topics(cluster: RunningCluster) -> None:
    create_topics(cluster, "given", "copied", partitions=PARTITIONS)


def check(cluster: RunningCluster, lines: Lines, copied: Copied) -> None:
    """Every line is there once, and nothing of the job is left open."""
    check_nothing_open(cluster)
    for _ in range(5):
        copied.read()
    assert len(copied.times) == lines.count
    assert [line for line, times in copied.times.items() if times > 1] == []


def check_nothing_open(cluster: RunningCluster) -> None:
    """No transaction is open, and readers of committed records see all partitions to their ends."""

    async def ends() -> tuple[list[str], bool]:
        async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            asked = {Partition("copied", number): LATEST for number in range(PARTITIONS)}
            opened = await admin.list_transactions(states=("Ongoing", "PrepareCommit", "PrepareAbort"))
            stable = await admin.list_offsets(asked, read_committed=True)
            return [one.transactional_id for one in opened], stable == await admin.list_offsets(asked)

    wait_until(lambda: asyncio.run(ends()) == ([], True), "no open transaction", 30)


def kill_leader(cluster: RunningCluster, turn: int) -> None:
    leader = cluster.leader("copied", turn % PARTITIONS)
    assert leader is not None
    cluster.broker(leader).kill9()


def restart_all(cluster: RunningCluster) -> None:
    for node in cluster.brokers:
        if not node.alive:
            node.restart()
    cluster.wait_until_in_sync("copied", 60)


def test_what_was_written_is_committed_after_a_kill(cluster: RunningCluster, tmp_path: Path) -> None:
    """The checkpoint is complete, and the job is killed before any of its transactions is committed."""
    copied = Copied(cluster.bootstrap)
    with FlinkJob(cluster.bootstrap, tmp_path / "job", "pooling") as job:
        with Lines(cluster.bootstrap) as lines:
            job.start()
            copied.wait_for(100, job)
            for killed in (False, True):
                held = job.hold_checkpoint()
                job.kill9()
                if killed:
                    kill_leader(cluster, 0)
                job.start(held)
                copied.wait_for_more(200, job)
            restart_all(cluster)
        copied.wait_for(lines.count, job)
        job.stop()
    check(cluster, lines, copied)

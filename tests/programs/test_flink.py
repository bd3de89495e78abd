"""Flink copies a topic exactly once: it is killed between a checkpoint and the commits of that, with a broker."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.client.admin import Admin
from ottla.client.admin.records import LATEST
from ottla.client.records import TopicPartition as Partition
from tests.cluster import RunningCluster, wait_until
from tests.programs.flink import FlinkJob
from tests.programs.jvm import needs_jdk
from tests.programs.topics import Input, Output, Sent, create_topics

pytestmark = [pytest.mark.java, needs_jdk, pytest.mark.timeout(900)]
PARTITIONS = 3


def lines() -> Iterator[Sent]:
    """Numbered, for any partition."""
    return (Sent("given", None, f"line{number}") for number in itertools.count(1))


class Copied(Output):
    """The lines that are committed in "copied" so far."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap, "copied", PARTITIONS)

    @property
    def times(self) -> Counter[str]:
        """How often each is there."""
        return Counter(line for _, line in self.messages)

    def wait_for_lines(self, count: int, job: FlinkJob) -> None:
        """Return once there are so many different ones, while the job runs."""

        def arrived() -> bool:
            self.read()
            return len(self.times) >= count

        job.wait_until(arrived, f"{count} lines")

    def wait_for_more(self, count: int, job: FlinkJob) -> None:
        """Return once there are so many more than now."""
        self.read()
        self.wait_for_lines(len(self.times) + count, job)


@pytest.fixture(autouse=True)
def topics(cluster: RunningCluster) -> None:
    create_topics(cluster, "given", "copied", partitions=PARTITIONS)


def check(cluster: RunningCluster, given: Input, copied: Copied) -> None:
    """Every line is there once, and nothing of the job is left open."""
    check_nothing_open(cluster)
    for _ in range(5):
        copied.read()
    assert len(copied.times) == len(given.sent)
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
        with Input(cluster.bootstrap, lines()) as given:
            job.start()
            copied.wait_for_lines(100, job)
            for killed in (False, True):
                held = job.hold_checkpoint()
                job.kill9()
                if killed:
                    kill_leader(cluster, 0)
                job.start(held)
                copied.wait_for_more(200, job)
            restart_all(cluster)
        copied.wait_for_lines(len(given.sent), job)
        job.stop()
    check(cluster, given, copied)

"""Flink copies a topic exactly once although its processes are killed, and the job is restored from several
checkpoints.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from ottla.client.admin import Admin
from ottla.client.admin.records import LATEST
from ottla.client.records import TopicPartition as Partition
from ottla.protocol.errors import KafkaError
from ottla.protocol.messages.producers import InitProducerIdRequest
from tests.cluster import RunningCluster, wait_until
from tests.integration.raw_transactions import RawTransactions
from tests.programs.flink import FlinkCluster, FlinkJob
from tests.programs.jvm import needs_jdk
from tests.programs.topics import Input, Output, Sent, create_topics
from tests.raw_peer import Peer

pytestmark = [pytest.mark.java, needs_jdk, pytest.mark.timeout(900)]
PARTITIONS = 3
TASKS = 2
NAMINGS = ("incrementing", "pooling")
ROUNDS = 6
KILLED = 0.5
"""Probability that a process is killed at a time."""
EPOCH_LAST = 32766
SENT_AHEAD = 100


def lines() -> Iterator[Sent]:
    """Yield numbered lines, for any partition."""
    return (Sent("given", None, f"line{number}") for number in itertools.count(1))


class Copied(Output):
    """The lines that are committed in "copied" so far."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap, "copied", PARTITIONS)

    @property
    def times(self) -> Counter[str]:
        """Number of copies of each line."""
        return Counter(line for _, line in self.messages)

    def wait_for_lines(self, count: int, job: FlinkJob) -> None:
        """Return once there are `count` different lines, while the job runs."""

        def arrived() -> bool:
            self.read()
            return len(self.times) >= count

        job.wait_until(arrived, f"{count} lines")

    def wait_for_more(self, count: int, job: FlinkJob) -> None:
        """Return once there are `count` further lines."""
        self.read()
        self.wait_for_lines(len(self.times) + count, job)

    def settle(self) -> set[str]:
        """Return the committed lines while no commits happen."""
        for _ in range(5):
            self.read()
        return set(self.times)


@pytest.fixture(autouse=True)
def topics(cluster: RunningCluster) -> None:
    create_topics(cluster, "given", "copied", partitions=PARTITIONS)


def check(cluster: RunningCluster, sent: Iterable[Sent], copied: Copied) -> None:
    """Check that every line is there once, and no transaction of the job is left open."""
    check_nothing_open(cluster)
    assert copied_again(sent, copied) == set()


def copied_again(sent: Iterable[Sent], copied: Copied) -> set[str]:
    """Return the lines with two copies. No line may be missing, or have more copies."""
    assert copied.settle() == {message.value for message in sent}
    assert max(copied.times.values()) <= 2
    return {line for line, times in copied.times.items() if times == 2}


def check_nothing_open(cluster: RunningCluster) -> None:
    """Check that no transaction is open, and that readers of committed records see all partitions to their ends."""
    wait_until(lambda: opened(cluster) == [], "no open transaction", 30)

    async def ends() -> bool:
        async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            asked = {Partition("copied", number): LATEST for number in range(PARTITIONS)}
            stable = await admin.list_offsets(asked, read_committed=True)
            return stable == await admin.list_offsets(asked)

    wait_until(lambda: asyncio.run(ends()), "all records stable", 30)


def opened(cluster: RunningCluster) -> list[tuple[str, str]]:
    """Return the transactions without an end, and their states."""

    async def ask() -> list[tuple[str, str]]:
        async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            listed = await admin.list_transactions(states=("Ongoing", "PrepareCommit", "PrepareAbort"))
            return [(transaction.transactional_id, transaction.state) for transaction in listed]

    return asyncio.run(ask())


def commit_a_checkpoint(cluster: RunningCluster, job: FlinkJob, number: int = 0) -> Path:
    """Return the last checkpoint, all of which is committed, and nothing else: each task has only its next transaction
    open.
    """
    last = job.pause_checkpoints(number)
    wait_until(
        lambda: [state for _, state in opened(cluster)] == ["Ongoing"] * TASKS, "the commits of a checkpoint"
    )
    return last


def kill_leader(cluster: RunningCluster, turn: int) -> None:
    leader = cluster.leader("copied", turn % PARTITIONS)
    assert leader is not None
    cluster.broker(leader).kill9()


def restart_all(cluster: RunningCluster) -> None:
    for node in cluster.brokers:
        if not node.alive:
            node.restart()
    cluster.wait_until_in_sync("copied", 60)


def wait_for_checkpoint(job: FlinkJob) -> None:
    """Return once another checkpoint is complete."""
    seen = len(job.checkpoints())
    job.wait_until(lambda: len(job.checkpoints()) > seen, "a checkpoint")


def check_no_warning(job: FlinkJob) -> None:
    """Check that Flink took no repeated commit for a failed one."""
    assert "signals data loss" not in job.said
    assert "already fenced" not in job.said


@pytest.mark.parametrize("naming", NAMINGS)
def test_what_was_written_is_committed_after_a_kill(
    cluster: RunningCluster, tmp_path: Path, naming: str
) -> None:
    """The checkpoint is complete, and the job is killed before any of its transactions is committed."""
    copied = Copied(cluster.bootstrap)
    with FlinkJob(cluster.bootstrap, tmp_path / "job", naming) as job:
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
    check(cluster, given.sent, copied)
    check_no_warning(job)


@pytest.mark.parametrize("naming", NAMINGS)
def test_a_commit_is_asked_for_again_by_a_later_life(
    cluster: RunningCluster, tmp_path: Path, naming: str
) -> None:
    """All of the checkpoint is committed, with EndTxn 5, and the job is killed before the next one.

    After its restoration it commits once more, over new connections and without the epochs that resulted from the first
    time (FLINK-40689).
    """
    copied = Copied(cluster.bootstrap)
    with FlinkJob(cluster.bootstrap, tmp_path / "job", naming) as job:
        with Input(cluster.bootstrap, lines()) as given:
            job.start()
            copied.wait_for_lines(100, job)
            for _ in range(2):
                last = commit_a_checkpoint(cluster, job)
                job.kill9()
                job.go_on()
                job.start(last)
                copied.wait_for_more(200, job)
        copied.wait_for_lines(len(given.sent), job)
        job.stop()
    check(cluster, given.sent, copied)
    check_no_warning(job)


def test_the_last_epoch_is_committed_again_by_a_later_life(cluster: RunningCluster, tmp_path: Path) -> None:
    """The transaction is under the last epoch, whose commit has led to another producer id (FLINK-40689)."""
    use_up_epochs(cluster, "copier-0-3")
    copied = Copied(cluster.bootstrap)
    with FlinkJob(cluster.bootstrap, tmp_path / "job", "incrementing") as job:
        with Input(cluster.bootstrap, lines()) as given:
            job.start()
            last = commit_a_checkpoint(cluster, job, 3)
            assert last.name == "chk-3"
            job.kill9()
            assert epoch(cluster, "copier-0-3") == 0
            job.go_on()
            job.start(last)
            copied.wait_for_more(200, job)
        copied.wait_for_lines(len(given.sent), job)
        job.stop()
    check(cluster, given.sent, copied)
    check_no_warning(job)


def use_up_epochs(cluster: RunningCluster, transactional_id: str) -> None:
    """Use up all epochs but one, so that the next transaction has the last epoch."""
    message = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
    )
    with RawTransactions(cluster.bootstrap) as raw:
        raw.init(transactional_id)
        peer = Peer(raw.coordinator(transactional_id))
    try:
        for first in range(1, EPOCH_LAST, SENT_AHEAD):
            sent = min(SENT_AHEAD, EPOCH_LAST - first)
            for _ in range(sent):
                peer.send(message, 5)
            answers = [peer.receive(message, 5, 60) for _ in range(sent)]
            assert answers[-1].producer_epoch == first + sent - 1
    finally:
        peer.close()


def epoch(cluster: RunningCluster, transactional_id: str) -> int:
    """Return the current epoch of this id's producer."""

    async def ask() -> int:
        async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            described = (await admin.describe_transactions([transactional_id]))[transactional_id]
            assert not isinstance(described, KafkaError), described
            return described.producer_epoch

    return asyncio.run(ask())


@pytest.mark.parametrize("naming", NAMINGS)
def test_a_checkpoint_without_lines_is_restored(cluster: RunningCluster, tmp_path: Path, naming: str) -> None:
    """The job has nothing to write for some checkpoints, and is killed: it ends empty transactions (FLINK-31363)."""
    copied = Copied(cluster.bootstrap)
    messages = lines()
    with FlinkJob(cluster.bootstrap, tmp_path / "job", naming) as job:
        with Input(cluster.bootstrap, messages) as first:
            job.start()
            copied.wait_for_lines(100, job)
        copied.wait_for_lines(len(first.sent), job)
        for _ in range(3):
            wait_for_checkpoint(job)
        held = job.hold_checkpoint()
        job.kill9()
        job.start(held)
        for _ in range(2):
            wait_for_checkpoint(job)
        with Input(cluster.bootstrap, messages) as given:
            copied.wait_for_more(100, job)
        sent = [*first.sent, *given.sent]
        copied.wait_for_lines(len(sent), job)
        job.stop()
    check(cluster, sent, copied)
    check_no_warning(job)


@pytest.mark.parametrize("naming", NAMINGS)
def test_an_older_checkpoint_has_what_is_newer_aborted(
    cluster: RunningCluster, tmp_path: Path, naming: str
) -> None:
    """The newest checkpoint was never committed, so the previous one continues at the readers' position."""
    copied = Copied(cluster.bootstrap)
    with FlinkJob(cluster.bootstrap, tmp_path / "job", naming) as job:
        with Input(cluster.bootstrap, lines()) as given:
            job.start()
            copied.wait_for_lines(100, job)
            job.hold_checkpoint()
            job.kill9()
            job.start(job.checkpoints()[-2])
            copied.wait_for_more(200, job)
        copied.wait_for_lines(len(given.sent), job)
        job.stop()
    check(cluster, given.sent, copied)


@pytest.mark.parametrize("naming", NAMINGS)
def test_an_older_checkpoint_repeats_what_was_committed_since(
    cluster: RunningCluster, tmp_path: Path, naming: str
) -> None:
    """Exactly the lines between the two checkpoints are there twice.

    Their transactions, and those of the older checkpoint, are committed before; pooled ids are in use again.
    """
    copied = Copied(cluster.bootstrap)
    with FlinkJob(cluster.bootstrap, tmp_path / "job", naming) as job:
        with Input(cluster.bootstrap, lines()) as given:
            job.start()
            copied.wait_for_lines(100, job)
            older = commit_a_checkpoint(cluster, job)
            before = copied.settle()
            job.go_on()
            copied.wait_for_more(400, job)
            assert commit_a_checkpoint(cluster, job) != older
            since = copied.settle() - before
            job.kill9()
            job.go_on()
            job.start(older)
            copied.wait_for_more(200, job)
        copied.wait_for_lines(len(given.sent), job)
        job.stop()
    check_nothing_open(cluster)
    assert copied_again(given.sent, copied) == since


def test_an_id_that_is_in_use_again_commits_nothing_newer(cluster: RunningCluster, tmp_path: Path) -> None:
    """Flink restores a checkpoint, and commits one of its transactions.

    Its id had another transaction since, unknown to any checkpoint (FLINK-40703), which is aborted.
    """
    copied = Copied(cluster.bootstrap)
    with FlinkJob(cluster.bootstrap, tmp_path / "job", "pooling") as job:
        with Input(cluster.bootstrap, lines()) as given:
            job.start()
            copied.wait_for_lines(100, job)
            job.fail_checkpoints(3)
            job.kill9()
            job.go_on()
            job.start(job.checkpoints()[-1])
            copied.wait_for_more(200, job)
            assert "its producer is already fenced" in job.said
        copied.wait_for_lines(len(given.sent), job)
        job.stop()
    check(cluster, given.sent, copied)


@pytest.fixture
def chance() -> random.Random:
    """Return the random source of kills, seeded by the environment variable OTTLA_FAULTS_SEED, or anew each run."""
    given = os.environ.get("OTTLA_FAULTS_SEED")
    seed = int(given) if given is not None else int.from_bytes(os.urandom(4))
    print(f"Repeat these kills with OTTLA_FAULTS_SEED={seed}")
    return random.Random(seed)


@pytest.mark.parametrize("naming", NAMINGS)
def test_lines_are_copied_once_through_kills(
    cluster: RunningCluster, tmp_path: Path, naming: str, chance: random.Random
) -> None:
    """Job manager, tasks and leaders are killed at any moment, also during a recovery.

    Tasks of a dead manager go on for a while, beside those that a new manager starts from the last checkpoint.
    """
    copied = Copied(cluster.bootstrap)
    with FlinkCluster(cluster.bootstrap, tmp_path / "job", naming) as job:
        with Input(cluster.bootstrap, lines()) as given:
            job.start()
            copied.wait_for_lines(100, job)
            for turn in range(ROUNDS):
                for _ in range(chance.choice((1, 2))):
                    wait_a_moment(chance)
                    kill_some(cluster, job, chance, turn)
                copied.wait_for_more(200, job)
                restart_all(cluster)
        copied.wait_for_lines(len(given.sent), job)
        job.stop()
    check(cluster, given.sent, copied)


def wait_a_moment(chance: random.Random) -> None:
    """Wait up to some checkpoints long, so that the next kill comes at any moment of a checkpoint or a recovery."""
    threading.Event().wait(chance.uniform(0, 3))


def kill_some(cluster: RunningCluster, job: FlinkCluster, chance: random.Random, turn: int) -> None:
    """Kill up to three: the job manager, a process of tasks, and a leader if all brokers run.

    The first two come back.
    """
    hit = [process for process in ("manager", "tasks", "leader") if chance.random() < KILLED] or ["manager"]
    chance.shuffle(hit)
    print(f"turn {turn}: {hit}")
    tasks = chance.choice(job.tasks)
    for victim in hit:
        if victim == "manager":
            job.kill9()
        elif victim == "tasks":
            tasks.kill9()
        elif all(node.alive for node in cluster.brokers):
            kill_leader(cluster, turn)
    if "tasks" in hit:
        tasks.start()
    if "manager" in hit:
        job.start(job.checkpoints()[-1])

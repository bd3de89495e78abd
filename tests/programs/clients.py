"""Common parts of programs with several client libraries, which write, read, share and copy on request.

Each is a command with a verb, and prints lines:

- `load TOPIC CODEC...` writes 0, 1, 2 ... until SIGTERM, those of one remainder to one partition with one codec. It
  says `acknowledged N` now and then, `failed WHY`, and `done N` at its end.
- `read TOPIC COUNT` says `PARTITION VALUE` for that many records.
- `member TOPIC GROUP NAME` says `holds [PARTITIONS]` and `PARTITION VALUE`, and commits what it said.
- `copy TOPIC TARGET GROUP NAME` copies as a transactional member of a group: exactly once, or at least once where its
  library asks for offsets without regard to open transactions.
- `admin TOPIC GROUP` says what it was told, as one object of JSON.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient

from tests.cluster import RunningCluster, running_cluster, wait_until
from tests.integration.history import SMALL_CLUSTER, coordinator_of
from tests.programs.process import Program
from tests.programs.topics import Output, create_topics

WAIT_S = 90.0
PARTITIONS = 4
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_ACKNOWLEDGED = re.compile(r"^acknowledged (\d+)$", re.MULTILINE)
_READ = re.compile(r"^(\d+) (\d+)$", re.MULTILINE)
_HOLDS = re.compile(r"^holds \[([\d ,]*)\]$", re.MULTILINE)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """Run one cluster for all tests of a module, which imports this fixture."""
    with running_cluster(tmp_path_factory.mktemp("cluster"), settings=SMALL_CLUSTER) as running:
        yield running


@dataclass(frozen=True)
class Client:
    """A program of one client library."""

    command: Sequence[str]
    cluster: RunningCluster
    folder: Path

    def program(self, verb: str, *arguments: str, name: str = "") -> Program:
        """Return a program that runs until it is stopped."""
        argv = [*self.command, verb, self.cluster.bootstrap, *arguments]
        return Program(argv, self.folder / f"{name or verb}.log")

    def told(self, verb: str, *arguments: str) -> str:
        """Return the output of a program that ends by itself."""
        argv = [*self.command, verb, self.cluster.bootstrap, *arguments]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=WAIT_S, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    def admin(self, topic: str, group: str) -> dict[str, Any]:
        """Return the report of its admin client."""
        report: dict[str, Any] = json.loads(self.told("admin", topic, group))
        return report

    @contextmanager
    def loading(self, topic: str, *codecs: str) -> Iterator[Load]:
        """Write numbers until the block ends."""
        create_topics(self.cluster, topic, partitions=len(codecs))
        with self.program("load", topic, *codecs, name=f"load-{topic}") as program:
            load = Load(program, len(codecs))
            load.wait_for_more(100)
            yield load
            load.finish()


@dataclass
class Load:
    """A program that writes."""

    program: Program
    partitions: int
    count: int = 0

    @property
    def acknowledged(self) -> int:
        found = _ACKNOWLEDGED.findall(self.program.said)
        return int(found[-1]) if found else 0

    def wait_for_more(self, more: int) -> None:
        goal = self.acknowledged + more
        wait_until(
            lambda: self.acknowledged >= goal or not self.program.alive, f"{more} acknowledged", WAIT_S
        )
        assert self.program.alive, self.program.said[-3000:]

    def finish(self) -> None:
        """Stop writing; then every number has its outcome, and none has failed."""
        self.program.stop(WAIT_S)
        said = self.program.said
        assert "failed" not in said, said[-3000:]
        done = re.search(r"^done (\d+)$", said, re.MULTILINE)
        assert done is not None, said[-3000:]
        self.count = int(done[1])

    @property
    def expected(self) -> list[list[int]]:
        """Expected numbers of each partition."""
        return [[*range(partition, self.count, self.partitions)] for partition in range(self.partitions)]


def by_partition(said: str, partitions: int) -> list[list[int]]:
    """Return the values that a program reports as read, by partition."""
    found: list[list[int]] = [[] for _ in range(partitions)]
    for partition, value in _READ.findall(said):
        found[int(partition)].append(int(value))
    return found


def held(program: Program) -> set[int]:
    """Return the partitions of a member's last assignment."""
    found = _HOLDS.findall(program.said)
    return {int(number) for number in re.findall(r"\d+", found[-1])} if found else set()


def stored(bootstrap: str, topic: str, expected: list[list[int]]) -> list[list[int]]:
    """Return the committed numbers of each partition: the expected number of them, and any that arrive in another
    second.
    """
    output = Output(bootstrap, topic, len(expected))

    def reached() -> bool:
        return all(
            len(set(values)) >= len(wanted) for values, wanted in zip(output.values, expected, strict=True)
        )

    output.wait_until(reached, "all numbers", WAIT_S)
    return [[int(value) for value in values] for values in output.values]


def kill_and_restart_leader(cluster: RunningCluster, topic: str, partition: int, load: Load) -> None:
    """Kill the leader by SIGKILL, and restart it; the load goes on without it, and with it."""
    leader = cluster.leader(topic, partition)
    assert leader is not None
    _kill_and_restart(cluster, leader, load)
    cluster.wait_until_in_sync(topic, WAIT_S)
    load.wait_for_more(50)


def kill_and_restart_coordinator(cluster: RunningCluster, group: str, load: Load) -> None:
    """Kill the coordinator by SIGKILL, and restart it; the group and the load go on without it, and with it."""
    _kill_and_restart(
        cluster, coordinator_of(AdminClient({"bootstrap.servers": cluster.bootstrap}), group), load
    )


def _kill_and_restart(cluster: RunningCluster, broker_id: int, load: Load) -> None:
    node = cluster.broker(broker_id)
    node.kill9()
    load.wait_for_more(200)
    node.restart()


def check_records(client: Client, topic: str, *codecs: str, once: bool = True, kill: bool = True) -> None:
    """Check that every number is in its partition, in order, also as read here, although a leader dies under the load
    if `kill` is set.

    Without `once` a number may be there several times, as written by a program that is not idempotent.
    """
    with client.loading(topic, *codecs) as load:
        if kill:
            kill_and_restart_leader(client.cluster, topic, 0, load)
    there = stored(client.cluster.bootstrap, topic, load.expected)
    assert (there if once else [list(dict.fromkeys(values)) for values in there]) == load.expected
    count = sum(map(len, there))
    assert by_partition(client.told("read", topic, str(count)), load.partitions) == there


def check_group(client: Client, topic: str, *, once: bool = True) -> None:
    """Check that two members share; one dies, and then a leader: no record is missed, and few are read twice."""
    with ExitStack() as running:
        load = running.enter_context(client.loading(topic, *["none"] * PARTITIONS))
        ann, ben = (
            running.enter_context(client.program("member", topic, f"g-{topic}", name, name=f"{topic}-{name}"))
            for name in ("ann", "ben")
        )
        every = set(range(PARTITIONS))
        wait_until(
            lambda: held(ann) and held(ben) and held(ann) ^ held(ben) == every, "two who share", WAIT_S
        )
        wait_until(lambda: len(_numbers(ann)) >= 20 and len(_numbers(ben)) >= 20, "two who read", WAIT_S)
        ann.kill9()
        wait_until(lambda: held(ben) == every, "the other member to have all", WAIT_S)
        kill_and_restart_leader(client.cluster, topic, 1, load)
        load.finish()
        wait_until(lambda: _missed(load, ann, ben) == set(), "every number at a member", WAIT_S)
        if not once:
            return
        # Records that were read and not yet committed come again to the next owner of their partition, and to the same
        # one if a broker died before it had answered. No program reads more than five messages before it commits.
        assert _repeats(ann, ben) <= 2 * 5 * PARTITIONS


def check_copies(client: Client, source: str, *, once: bool = True) -> None:
    """Check that two copiers in a group copy every number once, although each is killed twice and restarted.

    A leader dies with one of them, and their group's coordinator with another. Without `once` duplicates are permitted,
    since a program that ignores open transactions when it fetches its group's offsets may have been rebalanced during
    one. No record may be missing then either.
    """
    target = f"{source}-copy"
    create_topics(client.cluster, target, partitions=PARTITIONS)
    with ExitStack() as running:
        load = running.enter_context(client.loading(source, *["none"] * PARTITIONS))
        copiers = [
            running.enter_context(
                client.program("copy", source, target, f"g-{source}", name, name=f"{source}-{name}")
            )
            for name in ("ann", "ben")
        ]
        for turn, copier in enumerate(copiers * 2):
            wait_for_commits(copier, 2)
            copier.kill9()
            if turn == 1:
                kill_and_restart_leader(client.cluster, target, turn, load)
            if turn == 3:
                kill_and_restart_coordinator(client.cluster, f"g-{source}", load)
            copier.start()
        load.finish()
        copied = stored(client.cluster.bootstrap, target, load.expected)
        assert (copied if once else [sorted(set(values)) for values in copied]) == load.expected
    assert stored(client.cluster.bootstrap, source, load.expected) == load.expected


def wait_for_commits(copier: Program, more: int) -> None:
    """Return once the copier has committed `more` further transactions."""

    def committed() -> int:
        lines = [line for line in copier.said.rpartition("\n")[0].splitlines() if '"commits":' in line]
        return sum(json.loads(lines[-1])["commits"].values()) if lines else 0

    goal = committed() + more
    wait_until(lambda: committed() >= goal or not copier.alive, f"{goal} transactions", WAIT_S)
    assert copier.alive, copier.said[-3000:]


def _missed(load: Load, *members: Program) -> set[int]:
    return set(range(load.count)) - set(_numbers(*members))


def _repeats(*members: Program) -> int:
    numbers = _numbers(*members)
    return len(numbers) - len(set(numbers))


def _numbers(*members: Program) -> list[int]:
    return [int(value) for member in members for _, value in _READ.findall(member.said)]


def make_empty_group(client: Client, topic: str, group: str) -> None:
    """Make a topic with some records, and a group without members that has committed them."""
    with client.loading(topic, "none") as load, client.program("member", topic, group, "ann") as member:
        member.wait_until_said("\n0 50\n", WAIT_S)
        load.finish()
    admin = AdminClient({"bootstrap.servers": client.cluster.bootstrap})

    def state() -> ConsumerGroupState:
        found: ConsumerGroupState = admin.describe_consumer_groups([group])[group].result(30).state
        return found

    wait_until(lambda: state() is ConsumerGroupState.EMPTY, "a group without members", WAIT_S)

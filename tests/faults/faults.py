"""Faults of processes, by whom they hit: kill -9, SIGSTOP and SIGCONT, until everything is well again.

    with Faults(cluster, topics=("orders",)) as faults:
        faults.kill(faults.leader("orders", 0), faults.quorum_leader())
        faults.heal()

Every fault is counted and noted with its time; a test that fails inside the block says what had happened, and leaves
all processes running for the tests after it.
"""

from __future__ import annotations

import math
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from confluent_kafka.admin import AdminClient

from tests.cluster import Node, RunningCluster, wait_for, wait_until
from tests.integration.history import coordinator_of

OFFSETS_TOPIC = "__consumer_offsets"
TALLY: Counter[str] = Counter()
"""Faults that the tests of this process have applied so far, for the summary at the end of a run."""
HEAL_S = 90.0
"""Seconds after the last node's restart within which every replica is in sync and the quorum agrees."""


@dataclass
class Faults:
    """Faults of the processes of one cluster."""

    cluster: RunningCluster
    topics: tuple[str, ...] = ()
    """Topics whose replicas are all in sync when the cluster is well."""
    seed: int | None = None
    """Seed that decides about the faults, if any; shown when the test fails."""
    groups: bool = True
    """True if there are groups; then the offsets topic must be in sync, too."""
    journal: list[str] = field(default_factory=list)
    healed_s: float = math.inf
    """Time of the last fault's end, by `time.monotonic`."""

    def __post_init__(self) -> None:
        self._began = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            if self.seed is not None:
                error.add_note(f"Repeat this order of faults with OTTLA_FAULTS_SEED={self.seed}")
            error.add_note(f"What had happened:\n{self.story()}")
            self.resume(*[node for node in self.nodes if node.paused])
            self.restart(*[node for node in self.nodes if not node.alive])

    @property
    def nodes(self) -> list[Node]:
        """All processes."""
        return [*self.cluster.quorum, *self.cluster.brokers]

    def kill(self, *nodes: Node) -> None:
        """Send SIGKILL to all of them before waiting for the first; a paused process dies, too."""
        for node in nodes:
            self._note("kill", node)
            os.kill(node.pid, signal.SIGKILL)
            node.paused = False
        wait_until(lambda: not any(node.alive for node in nodes), f"the end of {names(nodes)}")

    def pause(self, *nodes: Node) -> None:
        """Send SIGSTOP: the processes hang, and keep their connections."""
        for node in nodes:
            self._note("pause", node)
            node.pause()

    def resume(self, *nodes: Node) -> None:
        """Send SIGCONT."""
        for node in nodes:
            self._note("resume", node)
            node.resume()

    def restart(self, *nodes: Node) -> None:
        """Start dead nodes, and return at once."""
        for node in nodes:
            self._note("restart", node)
            node.restart()

    def stop(self, node: Node) -> None:
        """Stop a node by SIGTERM, and return once its process is gone."""
        self._note("stop", node)
        node.terminate()

    def let_pass(self, duration_s: float) -> None:
        """Leave the cluster alone for a time, e.g. until a session ends."""
        time.sleep(duration_s)

    def heal(self, timeout_s: float = HEAL_S) -> None:
        """Resume paused nodes, start dead ones, and return once the cluster is whole."""
        self.resume(*[node for node in self.nodes if node.paused])
        self.restart(*[node for node in self.nodes if not node.alive])
        self.healed_s = time.monotonic()
        self.wait_whole(timeout_s)

    def wait_whole(self, timeout_s: float = HEAL_S) -> None:
        """Return once the quorum agrees and every replica of the topics is in sync."""
        deadline = time.monotonic() + timeout_s
        self.cluster.wait_until_quorum_agrees(timeout_s)
        for topic in (*self.topics, *[OFFSETS_TOPIC] * self.groups):
            self.cluster.wait_until_in_sync(topic, max(1.0, deadline - time.monotonic()))
        self.journal.append(f"{self._elapsed():7.2f} s  whole")

    def leader(self, topic: str, partition: int) -> Node:
        """Return the broker that leads a partition; waits for a leader."""
        found = wait_for(
            lambda: self.cluster.leader(topic, partition), f"a leader of {topic}-{partition}", HEAL_S
        )
        return self.cluster.broker(found)

    def wait_led_by_another(self, topic: str, partition: int, than: Node) -> None:
        """Return once another broker leads a partition."""
        wait_until(
            lambda: self.cluster.leader(topic, partition) not in (None, than.id),
            f"a leader of {topic}-{partition} after broker {than.id}",
            HEAL_S,
        )

    def follower(self, topic: str, partition: int) -> Node:
        """Return a broker that follows a partition."""
        leader = self.leader(topic, partition)
        replicas = self.cluster.partitions(topic)[partition].replicas
        return self.cluster.broker(next(replica for replica in replicas if replica != leader.id))

    def quorum_leader(self) -> Node:
        """Return the quorum node that leads."""
        return self.cluster.quorum_leader()

    def quorum_follower(self) -> Node:
        """Return a quorum node that follows."""
        leader = self.quorum_leader()
        return next(node for node in self.cluster.quorum if node is not leader)

    def coordinator(self, group: str) -> Node:
        """Return the broker that coordinates a group."""
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap, "log_level": 0})
        return self.cluster.broker(coordinator_of(admin, group))

    def story(self) -> str:
        """Return the journal of all faults, one a line."""
        return "\n".join(self.journal)

    def note(self, what: str, whom: str) -> None:
        """Note a fault that the test itself applies to something other than a process."""
        TALLY[what] += 1
        self.journal.append(f"{self._elapsed():7.2f} s  {what:7} {whom}")

    def _note(self, what: str, node: Node) -> None:
        self.note(what, f"{node.role} {node.id}")

    def _elapsed(self) -> float:
        return time.monotonic() - self._began


@dataclass
class RandomFaults:
    """Random kills, pauses and restarts, in an order that depends on the seed alone.

    Majorities die, and everything may be down at once. Acknowledged records must survive, since the page cache does;
    progress is only required after `Faults.heal`.
    """

    faults: Faults
    seed: int
    calm_s: tuple[float, float] = (0.1, 2.0)
    """Range of the random time between two faults, in seconds."""

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._steps: dict[Callable[[], None], int] = {
            self._kill_one: 5,
            self._pause_one: 4,
            self._come_back: 6,
            self._kill_some: 2,
            self._kill_all: 1,
        }

    def run(self, steps: int) -> None:
        """Do this number of steps; nodes may be dead or paused afterwards."""
        for _ in range(steps):
            [step] = self._random.choices(list(self._steps), list(self._steps.values()))
            step()
            time.sleep(self._random.uniform(*self.calm_s))

    def _kill_one(self) -> None:
        self._kill(1)

    def _kill_some(self) -> None:
        self._kill(self._random.randint(2, len(self.faults.nodes)))

    def _kill_all(self) -> None:
        self._kill(len(self.faults.nodes))
        self.faults.restart(*self._shuffled())

    def _kill(self, count: int) -> None:
        chosen = self._shuffled()[:count]
        self.faults.kill(*[node for node in chosen if node.alive])

    def _pause_one(self) -> None:
        [node] = self._shuffled()[:1]
        if node.alive and not node.paused:
            self.faults.pause(node)

    def _come_back(self) -> None:
        """Bring absent nodes back, each with a probability of two thirds."""
        for node in self._shuffled():
            stays_away = self._random.random() < 1 / 3
            if stays_away:
                continue
            if node.paused:
                self.faults.resume(node)
            elif not node.alive:
                self.faults.restart(node)

    def _shuffled(self) -> list[Node]:
        return self._random.sample(self.faults.nodes, len(self.faults.nodes))


def names(nodes: tuple[Node, ...] | list[Node]) -> str:
    """Return the names of the nodes, for a message."""
    return ", ".join(f"{node.role} {node.id}" for node in nodes)

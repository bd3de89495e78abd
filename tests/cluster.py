"""Real clusters for tests, started by `ottla up`: nodes to kill, pause and start again, waits with deadlines.

    with running_cluster(tmp_path, quorum=1, brokers=3, settings={"log.segment.bytes": "1048576"}) as cluster:
        leader = cluster.leader("orders", 0)
        cluster.broker(leader).kill9()
        cluster.wait_until(lambda: cluster.leader("orders", 0) not in (None, leader), "another leader")

Nothing outlives the `with` block, and nothing outlives the test process either.
"""

from __future__ import annotations

import asyncio
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ottla.cli.connection.plain_quorum_link import NOBODY
from ottla.cli.local_cluster.layout import known_layout
from ottla.cli.local_cluster.quorum_status import ask_quorum, leader_of
from ottla.client.admin import Admin
from ottla.client.connections.metadata import PartitionInfo
from ottla.protocol.errors import KafkaError
from ottla.testing.launching import Launch
from ottla.testing.nodes import Node
from ottla.testing.processes import Process, Start, executed
from tests.commands import forked

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 45.0
WAIT_S = 60.0
PAUSE_S = 0.02
"""Seconds between the repeated calls of a client while a test waits for another event. Without a pause the client and
its brokers would each take a whole processor."""

T = TypeVar("T")


@dataclass
class RunningCluster:
    """A running cluster."""

    directory: Path
    launcher: Process | None
    description: dict[str, Any]
    brokers: list[Node] = field(default_factory=list)
    quorum: list[Node] = field(default_factory=list)
    reached_by: dict[str, Any] = field(default_factory=dict)
    """Options for Ottla's own client besides the addresses, for listeners that need them."""
    start_node: Start = forked
    """Function that starts a node again."""

    def __post_init__(self) -> None:
        self.brokers = [Node("broker", entry, start=self.start_node) for entry in self.description["brokers"]]
        self.quorum = [Node("quorum", entry, start=self.start_node) for entry in self.description["quorum"]]

    @property
    def bootstrap(self) -> str:
        """Bootstrap addresses in the form that clients take."""
        return str(self.description["bootstrap"])

    def broker(self, broker_id: int) -> Node:
        """Return the broker with this id."""
        return next(node for node in self.brokers if node.id == broker_id)

    def quorum_node(self, node_id: int) -> Node:
        """Return the quorum node with this id."""
        return next(node for node in self.quorum if node.id == node_id)

    def quorum_leader(self) -> Node:
        """Return the quorum's leader; waits for one."""
        layout = known_layout(self.directory)

        def ask() -> Node | None:
            leader = leader_of(ask_quorum(layout))
            return None if leader is None else self.quorum_node(leader)

        return wait_for(ask, "a quorum leader")

    def wait_until_quorum_agrees(self, timeout_s: float = WAIT_S) -> None:
        """Return once every quorum node is up and names the same leader."""
        layout = known_layout(self.directory)

        def agreed() -> bool:
            answers = ask_quorum(layout)
            named = {answer.leader_id for answer in answers}
            return all(answer.reachable for answer in answers) and len(named) == 1 and NOBODY not in named

        wait_until(agreed, "a quorum that agrees", timeout_s)

    def taking_part(self) -> set[int]:
        """Return the ids of the brokers that are not fenced, as one broker reports them; the set is empty if no broker
        answers. Metadata also lists fenced brokers.
        """
        awake = [node.address for node in self.brokers if node.alive and not node.paused]

        async def answer() -> set[int]:
            async with Admin(bootstrap_servers=awake, **self.reached_by) as admin:
                return {broker.id for broker in (await admin.describe_cluster()).brokers}

        with suppress(KafkaError):
            return asyncio.run(answer()) if awake else set()
        return set()

    def partitions(self, topic: str, ask: Sequence[Node] = ()) -> dict[int, PartitionInfo]:
        """Return leaders, replicas and ISRs of a topic, as any broker or one of `ask` reports them; empty if none
        answers.
        """
        awake = [node.address for node in ask or self.brokers if node.alive and not node.paused]
        if not awake:
            return {}

        async def answer() -> dict[int, PartitionInfo]:
            async with Admin(bootstrap_servers=awake, **self.reached_by) as admin:
                return (await admin.describe_topics([topic]))[0].partitions

        with suppress(KafkaError):
            return asyncio.run(answer())
        return {}

    def leader(self, topic: str, partition: int) -> int | None:
        """Return the id of a partition's leader, or None if it has no leader."""
        info = self.partitions(topic).get(partition)
        return None if info is None or info.leader < 0 else info.leader

    def wait_until_in_sync(self, topic: str, timeout_s: float = WAIT_S) -> None:
        """Return once every replica of every partition is in the ISR."""

        def in_sync() -> bool:
            found = self.partitions(topic).values()
            return bool(found) and all(set(partition.isr) == set(partition.replicas) for partition in found)

        wait_until(in_sync, f"every replica of {topic} in sync", timeout_s)

    def stop(self) -> int:
        """End everything in good order, as Control-C would; returns the exit code of `ottla up`."""
        for node in (*self.brokers, *self.quorum):
            with suppress(ProcessLookupError):
                node.resume()
        assert self.launcher is not None
        self.launcher.terminate()
        try:
            code = self.launcher.wait(STOP_TIMEOUT_S)
        finally:
            self.kill()
        return code

    def kill(self) -> None:
        """Kill the nodes that still run."""
        for node in (*self.brokers, *self.quorum):
            if node.alive:
                node.kill9()


@contextmanager
def running_cluster(
    directory: Path,
    *,
    quorum: int = 3,
    brokers: int = 3,
    settings: Mapping[str, str] | None = None,
    arguments: tuple[str, ...] = (),
    start: Start = forked,
) -> Iterator[RunningCluster]:
    """Run a cluster with its data in `directory` until the block ends. `start` starts each process."""
    launch = Launch(
        directory,
        directory / "up.log",
        quorum_nodes=quorum,
        brokers=brokers,
        settings=settings or {},
        arguments=arguments,
        start=start,
    )
    cluster: RunningCluster | None = None
    try:
        description = wait_for(launch.description, "cluster.json", START_TIMEOUT_S)
        cluster = RunningCluster(directory, launch.process, description, start_node=start)
        yield cluster
    finally:
        # Nothing of the data is needed again, so nothing has to stop in good order.
        if cluster is not None:
            cluster.kill()
        launch.stop(STOP_TIMEOUT_S)


executed_cluster = partial(running_cluster, start=executed)
"""Run a cluster like `running_cluster`, but start its nodes as separate programs, as users do."""


def wait_until(condition: Callable[[], object], what: str, timeout_s: float = WAIT_S) -> None:
    """Return once `condition()` holds; fails the test, naming `what`, after `timeout_s`."""
    wait_for(lambda: condition() or None, what, timeout_s)


def wait_for(attempt: Callable[[], T | None], what: str, timeout_s: float = WAIT_S) -> T:
    """Return the first result of `attempt` that is not None; fail the test, naming `what`, after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    pause_s = 0.002
    while (result := attempt()) is None:
        assert time.monotonic() < deadline, f"{what}: not within {timeout_s:g} s"
        time.sleep(pause_s)
        pause_s = min(pause_s * 2, 0.1)
    return result


def leader_by_metrics(address: str) -> int | None:
    """Return the quorum leader according to the node whose metrics are at `host:port`; None if the node does not know
    it.
    """
    with (
        suppress(OSError, urllib.error.URLError),
        urllib.request.urlopen(f"http://{address}/metrics", timeout=2) as answer,
    ):
        for line in answer.read().decode().splitlines():
            if line.startswith("ottla_quorum_leader "):
                return int(float(line.split()[1]))
    return None


def processes_of(folder: Path) -> list[int]:
    """Return the ids of all processes whose command line or standard output names a file in `folder`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                words = (entry / "cmdline").read_bytes(), os.fsencode(os.readlink(entry / "fd" / "1"))
            except OSError:
                continue
            if any(os.fsencode(folder) in word for word in words):
                found.append(int(entry.name))
    return found

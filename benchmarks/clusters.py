"""Ottla clusters for measurements and demos: `ottla up` as separate processes on loopback.

    with ottla_cluster(folder) as cluster: ...

Yields a `Cluster`, as `benchmarks.kafka.kafka_cluster` does for Apache Kafka, with the same settings where a setting
exists on both sides: three brokers, three quorum nodes, replication factor 3, min.insync.replicas 2, no initial
rebalance delay.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ottla.cli.local_cluster.liveness import is_alive
from ottla.testing.launching import Launch
from ottla.testing.processes import Process

START_TIMEOUT_S = 120


@dataclass
class Node:
    """A process of the cluster. `argv`, `cwd` and `env` start it again. `metrics` is the URL of its metrics, if it has
    one.
    """

    id: int
    port: int
    pid: int
    argv: list[str]
    cwd: str
    env: dict[str, str]
    metrics: str = ""


@dataclass
class Cluster:
    """A running cluster: its processes, and methods to kill and restart them."""

    name: str
    bootstrap: str
    brokers: list[Node]
    quorum: list[Node]
    children: list[Process] = field(default_factory=list)
    listeners: dict[str, str] = field(default_factory=dict)
    """Addresses of the brokers' further listeners, by the name of the protocol."""

    def broker(self, broker_id: int) -> Node:
        return next(b for b in self.brokers if b.id == broker_id)

    def kill(self, node: Node) -> None:
        """Send SIGKILL, and wait until the process is gone."""
        os.kill(node.pid, signal.SIGKILL)
        while is_alive(node.pid):
            time.sleep(0.0005)

    def restart(self, node: Node) -> None:
        """Start a dead node with the same data and port."""
        child = subprocess.Popen(
            node.argv,
            cwd=node.cwd,
            env=node.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.children.append(child)
        node.pid = child.pid

    def stop(self) -> None:
        """Stop brokers, then quorum nodes, then the processes that started them."""
        for nodes in (self.brokers, self.quorum):
            for node in nodes:
                if is_alive(node.pid):
                    os.kill(node.pid, signal.SIGTERM)
            deadline = time.monotonic() + 20
            for node in nodes:
                while is_alive(node.pid):
                    if time.monotonic() > deadline:
                        os.kill(node.pid, signal.SIGKILL)
                    time.sleep(0.02)
        for child in self.children:
            if child.poll() is None:
                child.terminate()
            child.wait()


@contextmanager
def ottla_cluster(
    data: Path, *, brokers: int = 3, quorum: int = 3, settings: Mapping[str, str] | None = None
) -> Iterator[Cluster]:
    """Run `ottla up` in a new folder."""
    chosen = {"min.insync.replicas": str(min(2, brokers)), "group.initial.rebalance.delay.ms": "0"} | dict(
        settings or {}
    )
    data.mkdir(parents=True, exist_ok=True)
    launch = Launch(data, data / "up.log", quorum_nodes=quorum, brokers=brokers, settings=chosen)
    cluster = Cluster("Ottla", "", [], [], [launch.process])
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while (told := launch.description()) is None:
            if time.monotonic() > deadline:
                raise RuntimeError(f"ottla up did not start:\n{launch.said()}")
            time.sleep(0.005)
        cluster.bootstrap = told["bootstrap"]
        for role, nodes in (("brokers", cluster.brokers), ("quorum", cluster.quorum)):
            keys = ("id", "port", "pid", "argv", "cwd", "env", "metrics")
            nodes += [Node(*(node[key] for key in keys)) for node in told[role]]
        yield cluster
    finally:
        cluster.stop()

"""Ottla clusters to measure and to show: `ottla up` as separate processes on loopback.

    with ottla_cluster(folder) as cluster: ...

Yields a `Cluster`, as `benchmarks.kafka.kafka_cluster` does for Apache Kafka, with the same settings where a
setting exists on both sides: three brokers, three quorum nodes, replication factor 3, min.insync.replicas 2,
no initial rebalance delay.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

START_TIMEOUT_S = 120


@dataclass
class Node:
    """One process; `argv`, `cwd` and `env` start it again."""

    id: int
    port: int
    pid: int
    argv: list[str]
    cwd: str
    env: dict[str, str]


@dataclass
class Cluster:
    """A running cluster: who its processes are, and how to kill and restart one."""

    name: str
    bootstrap: str
    brokers: list[Node]
    quorum: list[Node]
    children: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def broker(self, broker_id: int) -> Node:
        return next(b for b in self.brokers if b.id == broker_id)

    def kill(self, node: Node) -> None:
        """SIGKILL, and wait until the kernel has taken the process down."""
        os.kill(node.pid, signal.SIGKILL)
        while alive(node.pid):
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
        """End brokers, then quorum nodes, then whatever started them."""
        for nodes in (self.brokers, self.quorum):
            for node in nodes:
                if alive(node.pid):
                    os.kill(node.pid, signal.SIGTERM)
            deadline = time.monotonic() + 20
            for node in nodes:
                while alive(node.pid):
                    if time.monotonic() > deadline:
                        os.kill(node.pid, signal.SIGKILL)
                    time.sleep(0.02)
        for child in self.children:
            if child.poll() is None:
                child.terminate()
            child.wait()


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@contextmanager
def ottla_cluster(
    data: Path, *, brokers: int = 3, quorum: int = 3, settings: Mapping[str, str] | None = None
) -> Iterator[Cluster]:
    """`ottla up` in a new folder."""
    chosen = {"min.insync.replicas": str(min(2, brokers)), "group.initial.rebalance.delay.ms": "0"} | dict(
        settings or {}
    )
    command = [sys.executable, "-m", "ottla", "up", "--quorum", str(quorum), "--brokers", str(brokers)]
    command += ["--data", str(data), *(f"--set={k}={v}" for k, v in chosen.items())]
    data.mkdir(parents=True, exist_ok=True)
    described = data / "cluster.json"
    described.unlink(missing_ok=True)
    with (data / "up.log").open("ab") as out:
        launcher = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    cluster = Cluster("Ottla", "", [], [], [launcher])
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not described.exists():
            if launcher.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"ottla up did not start:\n{(data / 'up.log').read_text()}")
            time.sleep(0.005)
        told = json.loads(described.read_text())
        cluster.bootstrap = told["bootstrap"]
        for role, nodes in (("brokers", cluster.brokers), ("quorum", cluster.quorum)):
            nodes += [Node(*(n[k] for k in ("id", "port", "pid", "argv", "cwd", "env"))) for n in told[role]]
        yield cluster
    finally:
        cluster.stop()

"""Real clusters for tests, started by `ottla up`: nodes to kill, pause and start again, waits with deadlines.

    with running_cluster(tmp_path, quorum=1, brokers=3, settings={"log.segment.bytes": "1048576"}) as cluster:
        leader = cluster.leader("orders", 0)
        cluster.broker(leader).kill9()
        cluster.wait_until(lambda: cluster.leader("orders", 0) not in (None, leader), "another leader")

Nothing outlives the `with` block, and nothing outlives the test process either.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from ottla.cli.layout import known_layout
from ottla.cli.quorum_status import NOBODY, ask_quorum
from ottla.client.admin import Admin
from ottla.client.connections.metadata import PartitionInfo
from ottla.protocol.errors import KafkaError

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 45.0
WAIT_S = 30.0
PR_SET_PDEATHSIG = 1

T = TypeVar("T")


@dataclass
class Node:
    """One process of the cluster, by its entry in cluster.json."""

    role: str
    entry: dict[str, Any]
    process: subprocess.Popen[bytes] | None = None
    """The process when it was started again here."""
    paused: bool = False

    @property
    def id(self) -> int:
        return int(self.entry["id"])

    @property
    def port(self) -> int:
        return int(self.entry["port"])

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"{self.entry.get('host', '127.0.0.1')}:{self.port}"

    @property
    def pid(self) -> int:
        return int(self.entry["pid"]) if self.process is None else self.process.pid

    @property
    def alive(self) -> bool:
        if self.process is not None:
            return self.process.poll() is None
        return _alive(self.pid)

    def kill9(self) -> None:
        """SIGKILL; returns once the process is gone."""
        self._end(signal.SIGKILL)

    def terminate(self) -> None:
        """SIGTERM: a controlled stop; returns once the process is gone."""
        self._end(signal.SIGTERM)

    def pause(self) -> None:
        """SIGSTOP: the process hangs and keeps its connections."""
        os.kill(self.pid, signal.SIGSTOP)
        self.paused = True

    def resume(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)
        self.paused = False

    def restart(self) -> None:
        """Run the entry's argv again: same data, same port. Returns at once."""
        assert not self.alive, f"{self.role} {self.id} still runs"
        with Path(self.entry["log"]).open("ab") as log:
            self.process = subprocess.Popen(
                self.entry["argv"],
                cwd=self.entry["cwd"],
                env=self.entry["env"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=_die_with_parent,
            )

    def log(self) -> str:
        """What the node has written so far."""
        return Path(self.entry["log"]).read_text(errors="replace")

    def _end(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)
        wait_until(lambda: not self.alive, f"the end of {self.role} {self.id}")


@dataclass
class RunningCluster:
    """A cluster that is up."""

    directory: Path
    launcher: subprocess.Popen[bytes] | None
    description: dict[str, Any]
    brokers: list[Node] = field(default_factory=list)
    quorum: list[Node] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.brokers = [Node("broker", entry) for entry in self.description["brokers"]]
        self.quorum = [Node("quorum", entry) for entry in self.description["quorum"]]

    @property
    def bootstrap(self) -> str:
        """Addresses as clients take them."""
        return str(self.description["bootstrap"])

    def broker(self, broker_id: int) -> Node:
        """The broker with this id."""
        return next(node for node in self.brokers if node.id == broker_id)

    def quorum_node(self, node_id: int) -> Node:
        """The quorum node with this id."""
        return next(node for node in self.quorum if node.id == node_id)

    def quorum_leader(self) -> Node:
        """The quorum's leader, by the hook of cluster.json; waits for one."""

        def ask() -> Node | None:
            command = self.description["hooks"]["quorum_leader"]
            done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False)
            return self.quorum_node(int(done.stdout)) if done.returncode == 0 else None

        return wait_for(ask, "a quorum leader")

    def wait_until_quorum_agrees(self, timeout_s: float = WAIT_S) -> None:
        """Return once every quorum node is up and names the same leader."""
        layout = known_layout(self.directory)

        def agreed() -> bool:
            answers = ask_quorum(layout)
            named = {answer.leader_id for answer in answers}
            return all(answer.reachable for answer in answers) and len(named) == 1 and NOBODY not in named

        wait_until(agreed, "a quorum that agrees", timeout_s)

    def partitions(self, topic: str, ask: Sequence[Node] = ()) -> dict[int, PartitionInfo]:
        """Leaders, replicas and ISRs of a topic as brokers tell, or as these tell; empty while none does."""
        awake = [node.address for node in ask or self.brokers if node.alive and not node.paused]
        if not awake:
            return {}

        async def answer() -> dict[int, PartitionInfo]:
            async with Admin(bootstrap_servers=awake) as admin:
                return (await admin.describe_topics([topic]))[0].partitions

        with suppress(KafkaError):
            return asyncio.run(answer())
        return {}

    def leader(self, topic: str, partition: int) -> int | None:
        """The id of a partition's leader, None while there is none."""
        info = self.partitions(topic).get(partition)
        return None if info is None or info.leader < 0 else info.leader

    def wait_until_in_sync(self, topic: str, timeout_s: float = WAIT_S) -> None:
        """Return once every replica of every partition is in the ISR."""

        def in_sync() -> bool:
            found = self.partitions(topic).values()
            return bool(found) and all(set(one.isr) == set(one.replicas) for one in found)

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
            for node in (*self.brokers, *self.quorum):
                if node.alive:
                    node.kill9()
        return code


@contextmanager
def running_cluster(
    directory: Path,
    *,
    quorum: int = 3,
    brokers: int = 3,
    settings: Mapping[str, str] | None = None,
    arguments: tuple[str, ...] = (),
) -> Iterator[RunningCluster]:
    """A cluster whose data stands in `directory`, until the block ends."""
    command = [sys.executable, "-m", "ottla", "up", "--quorum", str(quorum), "--brokers", str(brokers)]
    command += ["--data", str(directory), *arguments]
    for key, value in (settings or {}).items():
        command += ["--set", f"{key}={value}"]
    described = directory / "cluster.json"
    described.unlink(missing_ok=True)
    output = directory / "up.log"
    with output.open("ab") as log:
        launcher = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=_die_with_parent
        )
    cluster: RunningCluster | None = None
    try:
        wait_until(lambda: described.exists() or launcher.poll() is not None, "cluster.json", START_TIMEOUT_S)
        assert described.exists(), f"{shlex.join(command)} ended:\n{output.read_text()}"
        cluster = RunningCluster(directory, launcher, json.loads(described.read_text()))
        yield cluster
    finally:
        if cluster is not None and launcher.poll() is None:
            cluster.stop()
        elif launcher.poll() is None:
            launcher.terminate()
            launcher.wait(STOP_TIMEOUT_S)


def wait_until(condition: Callable[[], object], what: str, timeout_s: float = WAIT_S) -> None:
    """Return once `condition()` holds; fails the test, naming `what`, after `timeout_s`."""
    wait_for(lambda: condition() or None, what, timeout_s)


def wait_for(attempt: Callable[[], T | None], what: str, timeout_s: float = WAIT_S) -> T:
    """What `attempt` returns once it is not None; fails the test, naming `what`, after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    pause_s = 0.002
    while (result := attempt()) is None:
        assert time.monotonic() < deadline, f"{what}: not within {timeout_s:g} s"
        time.sleep(pause_s)
        pause_s = min(pause_s * 2, 0.1)
    return result


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


_prctl = ctypes.CDLL(None).prctl if sys.platform.startswith("linux") else None


def _die_with_parent() -> None:
    """Run in a child before exec: the kernel ends it when the thread that started it ends."""
    if _prctl is not None:
        _prctl(PR_SET_PDEATHSIG, signal.SIGTERM)

"""A bank of tasks for workers of a share group, which write an output for each task while processes are killed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import ottla.sync
from ottla import Admin, NewTopic, Producer
from ottla.client.admin import GROUP_RESOURCE
from tests.cluster import RunningCluster, wait_until

PARTITIONS = 3
SETTINGS = {
    "share.coordinator.state.topic.num.partitions": "3",
    "broker.session.timeout.ms": "1000",
    "group.share.min.session.timeout.ms": "1000",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.heartbeat.interval.ms": "300",
}
"""Settings of a cluster that notices dead brokers and dead members soon."""
KILLS = ("worker", "leader", "states", "quorum")
"""Processes that are killed: a worker, the leader of tasks, the leader of states, and the leader of the quorum."""


class Workers:
    """Worker processes, which are started again after they are killed."""

    def __init__(self, bootstrap: str, folder: Path, kinds: Sequence[str], *where: str) -> None:
        self._folder = folder
        self._commands = {
            f"{where[0]}-{number}": [bootstrap, f"{where[0]}-{number}", kind, *where]
            for number, kind in enumerate(kinds)
        }
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start the workers that do not run."""
        for name in self._commands.keys() - self._running.keys():
            with (self._folder / f"{name}.log").open("ab") as log:
                command = [sys.executable, "-m", "tests.integration.share_worker", *self._commands[name]]
                self._running[name] = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self, name: str) -> None:
        """Kill a worker."""
        process = self._running.pop(name)
        process.kill()
        process.wait()

    def kill_one(self, number: int) -> None:
        """Kill a worker, and start it again."""
        self.kill(sorted(self._running)[number % len(self._running)])
        self.start()

    def close(self) -> None:
        """Kill all workers."""
        for name in list(self._running):
            self.kill(name)


class Outputs:
    """The committed outputs."""

    def __init__(self, cluster: RunningCluster, topic: str) -> None:
        self._reader = ottla.sync.Consumer(
            topic,
            bootstrap_servers=cluster.bootstrap,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        )
        self._reader.start()
        self.seen: Counter[bytes] = Counter()

    def read(self, timeout_s: float = 0.1) -> int:
        """Read the outputs that have come, and return the number of tasks with an output."""
        for records in self._reader.getmany(timeout_ms=timeout_s * 1000).values():
            self.seen.update(record.value for record in records)
        return len(self.seen)

    def close(self) -> None:
        self._reader.stop()


async def prepare(cluster: RunningCluster, group: str, tasks: str, outputs: str, count: int) -> set[bytes]:
    """Make the topics and the settings of the group, write the tasks, and return their values."""
    async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        configs = {"min.insync.replicas": "2"}
        await admin.create_topics(
            [NewTopic(name, PARTITIONS, 3, configs=configs) for name in (tasks, outputs)]
        )
        settings = {
            "share.auto.offset.reset": "earliest",
            "share.delivery.count.limit": 10,
            "share.session.timeout.ms": 3_000,
        }
        await admin.alter_configs(GROUP_RESOURCE, group, settings)
    values = [b"task %d" % number for number in range(count)]
    async with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for number, value in enumerate(values):
            await producer.send(tasks, value, partition=number % PARTITIONS)
    return set(values)


def strike(cluster: RunningCluster, workers: Workers, kill: str, number: int, tasks: str) -> None:
    """Kill a process, and start it again."""
    if kill == "worker":
        workers.kill_one(number)
        return
    if kill == "quorum":
        node = cluster.quorum_leader()
    else:
        topic = tasks if kill == "leader" else "__share_group_state"
        node = cluster.broker(cluster.leader(topic, number % PARTITIONS) or 0)
    node.kill9()
    time.sleep(1.0)  # The others notice its death, and go on.
    node.restart()
    cluster.wait_until_in_sync(tasks)


def outputs_of_bank(
    cluster: RunningCluster, folder: Path, kinds: Sequence[str], count: int, rounds: int
) -> tuple[set[bytes], Counter[bytes]]:
    """Let workers work off `count` tasks while each process is killed in `rounds`. Return tasks and outputs."""
    group = f"bank-{uuid.uuid4().hex[:8]}"
    tasks, outputs = f"{group}.tasks", f"{group}.outputs"
    values = asyncio.run(prepare(cluster, group, tasks, outputs, count))
    kills = KILLS * rounds
    read = Outputs(cluster, outputs)
    workers = Workers(cluster.bootstrap, folder, kinds, group, tasks, outputs)
    begun_s = time.monotonic()
    try:
        workers.start()
        for number, kill in enumerate(kills):
            least = (number + 1) * count // (len(kills) + 2)
            wait_until(lambda least=least: read.read() >= least, f"{least} outputs", 120)  # type: ignore[misc]
            print(f"{time.monotonic() - begun_s:.1f} s: {read.read()} outputs, kill of {kill}", flush=True)
            strike(cluster, workers, kill, number, tasks)
        wait_until(lambda: read.read() >= count, "all outputs", 180)
        print(f"{time.monotonic() - begun_s:.1f} s: {count} tasks have outputs", flush=True)
        read.read(2.0)
        return values, read.seen
    finally:
        workers.close()
        read.close()

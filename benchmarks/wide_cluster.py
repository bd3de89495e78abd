"""A cluster of many partitions: its cost at rest, and its longest pauses when an event happens.

    python -m benchmarks.wide_cluster [--partitions 10000] [--replicas 3] [--brokers 3] [--at-rest] [--record FILE]

Three quorum nodes, and the given number of brokers. Topics of 1,000 partitions are created, as many in one request as a
request may have. The readings follow the checkpoint of each minute, which flushes new logs: memory, descriptors, and
the CPU of a minute without activity; the newest snapshot of the quorum; each node serves its metrics. With --at-rest
this is all.

Otherwise a broker is killed, and 100 of the partitions that it led are written to as soon as possible. It comes back,
and leaders move back. It is killed again, and a client writes one record to each partition that it led. Finally each
broker is restarted in turn, after another checkpoint.

All the while each node is asked for /healthz every 25 ms, over a connection that it has accepted before. The CPU that
its main thread uses until it answers bounds the longest turn of its loop: the request may come in the middle of a turn,
and is answered in one of the next two. On a busy machine the CPU is far more, as the node continues while the answer
waits to be read.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import signal
import socket
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import uvloop
from rich.console import Console
from rich.table import Table

from ottla.cli.local_cluster.liveness import is_alive
from ottla.client.admin import Admin, NewTopic
from ottla.client.producer import Producer

from .clusters import Cluster, Node, ottla_cluster
from .cpu import cpu_s
from .long_turns import main_thread_cpu_s
from .rounds import record
from .scaling import memory_mb
from .takeover import few_of, written_after

PARTITIONS_OF_TOPIC = 1_000
PARTITIONS_OF_REQUEST = 10_000
QUIET_S = 60.0
CHECKPOINT_S = 65.0
PROBE_S = 0.025
DEADLINE_S = 900.0
LOOKING_SHARE = 10
"""Pause between two checks as a multiple of the check's duration, up to a second."""
FEW = 100
SETTINGS = {"metadata.log.max.record.bytes.between.snapshots": "262144"}


# ---------------------------------------------------------------- pauses


def watch(pages: list[str], pids: Any, peaks: Any) -> None:
    """Ask every node continuously, each in a separate thread."""
    threads = [
        threading.Thread(target=watch_node, args=(page, number, pids, peaks))
        for number, page in enumerate(pages)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def watch_node(page: str, number: int, pids: Any, peaks: Any) -> None:
    """Record the most CPU seconds that the main thread used for one answer."""
    address = urllib.parse.urlsplit(page)
    while True:
        try:
            with socket.create_connection((str(address.hostname), address.port or 0), DEADLINE_S) as sock:
                # Accepting and closing a connection takes some more turns, which do not count.
                time.sleep(PROBE_S)
                began_s = main_thread_cpu_s(pids[number])
                sock.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
                if sock.recv(1):
                    peaks[number] = max(peaks[number], main_thread_cpu_s(pids[number]) - began_s)
        except (OSError, ValueError):
            time.sleep(PROBE_S)


class Pauses:
    """The longest turn of each node's loop since the last call of `begin`."""

    def __init__(self, nodes: list[Node]) -> None:
        self._nodes = nodes
        self._pids = multiprocessing.Array("i", [node.pid for node in nodes])
        self._peaks = multiprocessing.Array("d", len(nodes))
        pages = [node.metrics for node in nodes]
        self._process = multiprocessing.Process(
            target=watch, args=(pages, self._pids, self._peaks), daemon=True
        )
        self._process.start()

    def begin(self) -> None:
        """Start measuring."""
        for number, node in enumerate(self._nodes):
            self._pids[number] = node.pid
            self._peaks[number] = 0.0

    def longest_ms(self, nodes: list[Node]) -> float:
        """Return the longest turn of these nodes in milliseconds."""
        longest_s: float = max(self._peaks[self._nodes.index(node)] for node in nodes)
        return round(1000 * longest_s, 1)

    def end(self) -> None:
        self._process.kill()
        self._process.join()


# ---------------------------------------------------------------- the steps


class WideCluster:
    """The cluster, with its readings so far."""

    def __init__(self, cluster: Cluster, folder: Path, partitions: int, replicas: int) -> None:
        self.cluster, self.folder = cluster, folder
        self.partitions, self.replicas = partitions, replicas
        self.nodes = [*cluster.brokers, *cluster.quorum]
        self.pauses = Pauses(self.nodes)
        self.steps: list[dict[str, object]] = []
        self.figures: dict[str, object] = {}
        self.topics = [f"wide-{number}" for number in range(partitions // PARTITIONS_OF_TOPIC)]

    async def timed(
        self, name: str, act: Callable[[], Awaitable[object]], done: Callable[[], Awaitable[bool]]
    ) -> None:
        """Run one step: record the time until the answer and until it is done, the CPU of all nodes, and the longest
        turns.
        """
        used = {node.id: cpu_s(node.pid) for node in self.nodes if is_alive(node.pid)}
        self.pauses.begin()
        began = time.monotonic()
        await act()
        answered = time.monotonic()
        async with asyncio.timeout(DEADLINE_S):
            while True:
                looked = time.monotonic()
                if await done():
                    break
                # Checking thousands of partitions takes long, and the nodes share the same cores.
                await asyncio.sleep(min(1.0, max(0.05, LOOKING_SHARE * (time.monotonic() - looked))))
        ended = time.monotonic()
        cpu = sum(cpu_s(node.pid) - used.get(node.id, 0) for node in self.nodes if is_alive(node.pid))
        step = {
            "step": name,
            "answer_s": round(answered - began, 2),
            "done_s": round(ended - began, 2),
            "cpu_s": round(cpu, 2),
            "longest_turn_ms_broker": self.pauses.longest_ms(self.cluster.brokers),
            "longest_turn_ms_quorum": self.pauses.longest_ms(self.cluster.quorum),
        }
        self.steps.append(step)
        print(step, flush=True)

    def logs_there(self) -> int:
        """Return the number of logs of these topics on the brokers' disks."""
        return sum(
            name.startswith("wide-")
            for broker in self.cluster.brokers
            for name in os.listdir(self.folder / f"broker-{broker.id}")
        )

    async def all_logs(self) -> bool:
        return self.logs_there() == self.partitions * self.replicas

    def is_ready(self, node: Node) -> bool:
        try:
            url = node.metrics.replace("/metrics", "/readyz")
            with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.HTTPError):
            return False

    async def ready(self, node: Node) -> bool:
        return await asyncio.to_thread(self.is_ready, node)

    async def create(self, admin: Admin) -> None:
        at_once = PARTITIONS_OF_REQUEST // PARTITIONS_OF_TOPIC
        for first in range(0, len(self.topics), at_once):
            names = self.topics[first : first + at_once]
            await admin.create_topics([NewTopic(name, PARTITIONS_OF_TOPIC, self.replicas) for name in names])

    async def quiet(self, before_mb: dict[int, float]) -> None:
        """Read memory, descriptors and CPU while nothing happens."""
        await asyncio.sleep(CHECKPOINT_S)
        used = {node.id: cpu_s(node.pid) for node in self.nodes}
        self.pauses.end()  # a node is not idle while it is being asked
        await asyncio.sleep(QUIET_S)
        idle = {node.id: round(100 * (cpu_s(node.pid) - used[node.id]) / QUIET_S, 2) for node in self.nodes}
        self.pauses = Pauses(self.nodes)
        hosted = self.partitions * self.replicas / len(self.cluster.brokers)
        more = {node.id: memory_mb(node.pid) - before_mb[node.id] for node in self.nodes}
        brokers, quorum = self.cluster.brokers, self.cluster.quorum
        self.figures |= {
            "memory_mb": {node.id: round(memory_mb(node.pid), 1) for node in self.nodes},
            "broker_kb_per_replica": round(1000 * max(more[node.id] for node in brokers) / hosted, 2),
            "quorum_kb_per_partition": round(
                1000 * max(more[node.id] for node in quorum) / self.partitions, 2
            ),
            "descriptors": {node.id: len(os.listdir(f"/proc/{node.pid}/fd")) for node in brokers},
            "idle_cpu_percent": idle,
            "snapshot_bytes": max(
                (path.stat().st_size for path in self.folder.glob("quorum-*/**/snapshot-[0-9]*")), default=0
            ),
        }
        print(self.figures, flush=True)

    async def pages(self) -> None:
        """Ask each node for its metrics, one after the other."""

        def read() -> None:
            for node in self.nodes:
                with urllib.request.urlopen(node.metrics, timeout=DEADLINE_S) as answer:
                    answer.read()

        await asyncio.sleep(1)  # the watching threads have begun
        await self.timed("metrics of each node", lambda: asyncio.to_thread(read), self.at_once)

    async def led_by(self, admin: Admin, broker_id: int) -> list[tuple[str, int]]:
        return [
            (topic.name, partition.index)
            for topic in await admin.describe_topics(self.topics)
            for partition in topic.partitions.values()
            if partition.leader == broker_id
        ]

    async def preferred(self, admin: Admin, broker_id: int) -> int:
        """Return the number of partitions of which the broker is the first replica."""
        return sum(
            partition.replicas[0] == broker_id
            for topic in await admin.describe_topics(self.topics)
            for partition in topic.partitions.values()
        )

    def others(self, node: Node) -> list[str]:
        """Return the addresses of the other brokers."""
        return [f"127.0.0.1:{broker.port}" for broker in self.cluster.brokers if broker is not node]

    async def kill(self, admin: Admin, node: Node) -> None:
        """Kill the node, and write to a few of its partitions from its death on: the brokers' view."""
        led = await self.led_by(admin, node.id)
        self.figures["led_by_the_killed"] = len(led)
        took: list[float] = []

        async def write() -> None:
            began = time.monotonic()
            self.cluster.kill(node)
            took.extend(await written_after(self.others(node), few_of(led, FEW), began))

        await self.timed(f"kill a broker: {FEW} of those it led are written", write, self.at_once)
        self._tell_times("taken_over_s", took)

    async def at_once(self) -> bool:
        """Return True: nothing more is waited for."""
        return True

    def _tell_times(self, name: str, took: list[float]) -> None:
        self.figures[name] = {
            "first": round(min(took), 3),
            "half": round(sorted(took)[len(took) // 2], 3),
            "all": round(max(took), 3),
        }
        print(name, self.figures[name], flush=True)

    async def kill_beside_client(self, admin: Admin, node: Node) -> None:
        """Kill the node, while a client writes a record to each of its partitions from its death on."""
        led = await self.led_by(admin, node.id)
        others = ",".join(self.others(node))
        took: list[float] = []
        async with Producer(bootstrap_servers=others, acks="all") as producer:
            for name in self.topics:
                await producer.send_and_wait(name, b"x", partition=0)

            async def written(delivery: Awaitable[object], began: float) -> None:
                await delivery
                took.append(time.monotonic() - began)

            async def write() -> None:
                began = time.monotonic()
                self.cluster.kill(node)
                async with asyncio.TaskGroup() as group:
                    for name, index in led:
                        delivery = await producer.send(name, b"x", partition=index)
                        group.create_task(written(delivery, began))

            await self.timed("kill a broker: a client writes to all it led", write, self.at_once)
        self._tell_times("writable_s", took)

    async def start(self, node: Node) -> None:
        await self.timed(
            f"broker {node.id}: start to ready", lambda: self._start(node), lambda: self.ready(node)
        )

    async def _start(self, node: Node) -> None:
        self.cluster.restart(node)
        self.pauses.begin()

    async def restart(self, node: Node) -> None:
        async def stop() -> None:
            os.kill(node.pid, signal.SIGTERM)

        async def stopped() -> bool:
            return not is_alive(node.pid)

        await self.timed(f"broker {node.id}: stop in good order", stop, stopped)
        await self.start(node)

    async def lead_again(self, admin: Admin, node: Node) -> None:
        """Let the node lead all partitions of which it is the first replica."""
        wanted = await self.preferred(admin, node.id)

        async def done() -> bool:
            return len(await self.led_by(admin, node.id)) == wanted

        await self.timed("preferred leaders", admin.elect_leaders, done)

    async def run(self, *, at_rest: bool) -> None:
        """Run all steps, in order; `at_rest`: only up to the first fault."""
        before_mb = {node.id: memory_mb(node.pid) for node in self.nodes}
        async with Admin(bootstrap_servers=self.cluster.bootstrap, request_timeout_ms=900_000) as admin:
            await self.timed("create", lambda: self.create(admin), self.all_logs)
            await self.quiet(before_mb)
            await self.pages()
            if at_rest:
                return
            last = self.cluster.brokers[-1]
            if self.replicas > 1:
                await self.kill(admin, last)
                await self.start(last)
                await self.lead_again(admin, last)
                await self.kill_beside_client(admin, last)
                await self.start(last)
                await self.lead_again(admin, last)
            await asyncio.sleep(CHECKPOINT_S)
            for node in self.cluster.brokers:
                await self.restart(node)
        self.pauses.end()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--partitions", type=int, default=10_000, help="a multiple of 1,000 (10000)")
    parser.add_argument("--replicas", type=int, default=3, choices=(1, 2, 3), help="of each partition (3)")
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--at-rest", action="store_true", help="end when it is known what it costs at rest")
    parser.add_argument("--record", type=Path)
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="ottla-wide-") as name,
        ottla_cluster(Path(name), brokers=arguments.brokers, settings=SETTINGS) as cluster,
    ):
        wide = WideCluster(cluster, Path(name), arguments.partitions, arguments.replicas)
        try:
            uvloop.run(wide.run(at_rest=arguments.at_rest))
        finally:
            wide.pauses.end()
            report(wide, arguments)


def report(wide: WideCluster, arguments: argparse.Namespace) -> None:
    """Print and record the existing readings, also after a failure."""
    if wide.steps:
        table = Table(*wide.steps[0])
        for step in wide.steps:
            table.add_row(*map(str, step.values()))
        Console(width=160).print(table)
    if arguments.record is not None:
        record(
            arguments.record,
            partitions=wide.partitions,
            replicas=wide.replicas,
            brokers=len(wide.cluster.brokers),
            load_average=round(os.getloadavg()[0], 1),
            steps=wide.steps,
            **wide.figures,
        )


if __name__ == "__main__":
    main()

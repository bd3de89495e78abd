"""Time from the death of a leader to the next acknowledged write, with Ottla's client: one record at a time, acks=all.

    python -m benchmarks.failover [--trials N] [--silent] [--record FILE]

Each trial waits until the topic is in sync. It ends the leader while a writer keeps one record in flight, and takes the
time from then to the first acknowledgement of a record sent after it. The leader is killed with SIGKILL. With
`--silent` it is stopped with SIGSTOP: its connections stay open and nothing answers, as when a machine or its network
is lost.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import statistics
import tempfile
import time
from pathlib import Path

import uvloop
from rich.console import Console
from rich.table import Table

from ottla.client.admin import Admin, NewTopic
from ottla.client.producer import Producer

from .clusters import Cluster, ottla_cluster
from .rounds import record

TOPIC = "failover"
STOPPED_S = 4.0


class Writer:
    """A writer of single records that reports their times."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self.acknowledged: asyncio.Queue[tuple[float, float]] = asyncio.Queue()
        self.count = 0

    async def run(self) -> None:
        """Write until cancelled; put the times (sent, acknowledged) of every record into the queue."""
        while True:
            sent = time.monotonic()
            await self._producer.send_and_wait(TOPIC, b"x" * 256, partition=0)
            self.count += 1
            self.acknowledged.put_nowait((sent, time.monotonic()))

    async def first_sent_after(self, moment: float) -> float:
        """Return the acknowledgement time of the first record that was sent after `moment`."""
        while True:
            sent, acknowledged = await self.acknowledged.get()
            if sent > moment:
                return acknowledged


async def trial(cluster: Cluster, admin: Admin, writer: Writer, *, is_silent: bool) -> float:
    """Run one failover; return its seconds."""
    leader = await in_sync_leader(admin)
    node = cluster.broker(leader)
    await asyncio.sleep(1.0)
    while not writer.acknowledged.empty():
        writer.acknowledged.get_nowait()
    if is_silent:
        return await stopped(node.pid, writer)
    dying = watch_end(node.pid)
    killed = time.monotonic()
    os.kill(node.pid, signal.SIGKILL)
    await dying
    dead = time.monotonic()
    async with asyncio.timeout(60):
        took = await writer.first_sent_after(dead) - killed
    await asyncio.sleep(0.3)
    cluster.restart(node)
    return took


async def stopped(pid: int, writer: Writer) -> float:
    """Stop a leader's process until a record that was sent afterwards is acknowledged; return the seconds.

    The process stays stopped for STOPPED_S more, as after a short pause the quorum would be more patient with it.
    """
    os.kill(pid, signal.SIGSTOP)
    began = time.monotonic()
    try:
        async with asyncio.timeout(60):
            took = await writer.first_sent_after(began) - began
        await asyncio.sleep(STOPPED_S)
    finally:
        os.kill(pid, signal.SIGCONT)
    return took


def watch_end(pid: int) -> asyncio.Future[None]:
    """Return a future that is done when the process has ended. The wait uses no processor time."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    descriptor = os.pidfd_open(pid)

    def end() -> None:
        loop.remove_reader(descriptor)
        os.close(descriptor)
        ended.set_result(None)

    loop.add_reader(descriptor, end)
    return ended


async def in_sync_leader(admin: Admin) -> int:
    """Return the leader, once all three replicas are in sync."""
    async with asyncio.timeout(60):
        while True:
            (topic,) = await admin.describe_topics([TOPIC])
            partition = topic.partitions[0]
            if partition.leader >= 0 and len(partition.isr) == 3:
                return int(partition.leader)
            await asyncio.sleep(0.02)


async def measure(cluster: Cluster, trials: int, console: Console, *, is_silent: bool) -> list[float]:
    async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        await admin.create_topics([NewTopic(TOPIC, 1, 3)])
        async with Producer(bootstrap_servers=cluster.bootstrap, linger_ms=0) as producer:
            writer = Writer(producer)
            await in_sync_leader(admin)
            writing = asyncio.create_task(writer.run())
            took = []
            for n in range(trials):
                took.append(await trial(cluster, admin, writer, is_silent=is_silent))
                console.print(f"trial {n + 1}: {took[-1] * 1e3:.1f} ms")
            writing.cancel()
            return took


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument(
        "--silent", action="store_true", help="stop the leader with SIGSTOP instead of killing it"
    )
    parser.add_argument("--record", type=Path, help="append the readings to this file")
    args = parser.parse_args()
    console = Console()
    with tempfile.TemporaryDirectory(prefix="failover-") as folder, ottla_cluster(Path(folder)) as cluster:
        took = [t * 1e3 for t in uvloop.run(measure(cluster, args.trials, console, is_silent=args.silent))]
    table = Table("trials", "p50 ms", "worst ms", "all ms")
    listed = " ".join(f"{t:.1f}" for t in sorted(took))
    table.add_row(str(len(took)), f"{statistics.median(took):.1f}", f"{max(took):.1f}", listed)
    console.print(table)
    if args.record is not None:
        readings = {"p50 ms": statistics.median(took), "worst ms": max(took), "all ms": sorted(took)}
        record(args.record, **{"signal": "SIGSTOP" if args.silent else "SIGKILL"} | readings)


if __name__ == "__main__":
    main()

"""The cost of a broker for the metadata quorum: when idle, and for each metadata record that is sent to it.

    python -m benchmarks.many_brokers [--brokers 3 50 200] [--record FILE]

Three quorum nodes are processes. The brokers are sessions with them in this process, which send heartbeats as real ones
do, and have no logs. Readings for each number of brokers: the CPU of each quorum node over a quiet window, and the CPU
and time to report a new topic of 1,000 partitions to all of them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import tempfile
import time
from pathlib import Path

import uvloop
from rich.console import Console
from rich.table import Table

from ottla.dataplane.quorum import QuorumSession
from ottla.protocol.messages.topic_commands import CreateTopics, NewTopic, PartitionAssignment

from .clusters import Cluster, ottla_cluster
from .cpu import cpu_s
from .quorum_transactions import config
from .rounds import record
from .scaling import memory_mb

FIRST_ID = 1_000
QUIET_S = 10.0
SETTLE_S = 3.0
PARTITIONS = 1_000
DEADLINE_S = 180.0


async def grow(cluster: Cluster, folder: Path, sessions: list[QuorumSession], count: int) -> None:
    """Add brokers until `count` take part."""
    new = []
    while len(sessions) < count:
        session = QuorumSession(
            config(cluster, folder, FIRST_ID + len(sessions)),
            on_delta=lambda image, delta: None,
            on_settled=lambda name, number: None,
        )
        session.ask_to_unfence()
        await session.start()
        sessions.append(session)
        new.append(session)
    async with asyncio.timeout(DEADLINE_S):
        for session in new:
            await session.unfenced()


async def told(sessions: list[QuorumSession], offset: int) -> None:
    """Wait until all brokers follow the metadata up to this offset."""
    async with asyncio.timeout(DEADLINE_S):
        while any(session.image.offset < offset for session in sessions):
            await asyncio.sleep(0.005)


async def measure(cluster: Cluster, folder: Path, counts: list[int]) -> list[dict[str, object]]:
    sessions: list[QuorumSession] = []
    rows: list[dict[str, object]] = []
    for count in counts:
        await grow(cluster, folder, sessions, count)
        await asyncio.sleep(SETTLE_S)
        before = [cpu_s(node.pid) for node in cluster.quorum]
        await asyncio.sleep(QUIET_S)
        idle = [
            100 * (cpu_s(node.pid) - was) / QUIET_S for node, was in zip(cluster.quorum, before, strict=True)
        ]
        before = [cpu_s(node.pid) for node in cluster.quorum]
        began = time.monotonic()
        assignments = [
            PartitionAssignment(
                partition=index, replicas=[FIRST_ID + (index + more) % 3 for more in range(3)]
            )
            for index in range(PARTITIONS)
        ]
        await sessions[0].submit(
            CreateTopics(
                topics=[NewTopic(name=f"t{count}", assignments=assignments)], seed=secrets.randbits(60)
            )
        )
        await told(sessions, sessions[0].image.offset)
        took = time.monotonic() - began
        spent = [cpu_s(node.pid) - was for node, was in zip(cluster.quorum, before, strict=True)]
        row: dict[str, object] = {
            "brokers": count,
            "idle_leader_percent": round(max(idle), 2),
            "idle_quorum_percent": round(sum(idle), 2),
            "told_s": round(took, 2),
            "told_leader_cpu_s": round(max(spent), 3),
            "told_quorum_cpu_s": round(sum(spent), 3),
            "leader_mb": round(max(memory_mb(node.pid) for node in cluster.quorum), 1),
        }
        print(json.dumps(row), flush=True)
        rows.append(row)
    for session in sessions:
        await session.stop()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--brokers", type=int, nargs="+", default=[3, 50, 200])
    parser.add_argument("--record", type=Path)
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="ottla-brokers-") as folder,
        ottla_cluster(Path(folder), brokers=1) as cluster,
    ):
        rows = uvloop.run(measure(cluster, Path(folder), sorted(arguments.brokers)))
    table = Table(*rows[0])
    for row in rows:
        table.add_row(*map(str, row.values()))
    Console(width=140).print(table)
    if arguments.record is not None:
        record(arguments.record, partitions=PARTITIONS, rows=rows)


if __name__ == "__main__":
    main()

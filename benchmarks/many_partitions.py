"""A topic of many partitions, RF 3: created on three brokers, led, spread over five, led evenly, deleted.

    python -m benchmarks.many_partitions [--partitions 1000] [--record benchmarks/results/many_partitions.json]

Each step is timed until it is done everywhere: every partition led and in sync, no replica moving, no log left on any
disk. Meanwhile a prober repeatedly asks a broker that takes part for the cluster; its slowest answer is the longest
stall.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import uvloop
from rich.console import Console
from rich.table import Table

from ottla.client.admin import Admin, NewTopic
from ottla.client.admin.reassignment_plan import plan
from ottla.client.records import TopicPartition

from .clusters import Cluster, ottla_cluster
from .cpu import cpu_s

TOPIC = "many"
FIRST, JOINING = (1, 2, 3), (4, 5)
RESULTS = Path(__file__).parent / "results" / "many_partitions.json"
DEADLINE_S = 300


@dataclass(frozen=True, slots=True)
class Step:
    """A step with its times: `answer_s` until the request was answered, `done_s` until it was done everywhere."""

    name: str
    answer_s: float
    done_s: float
    slowest_probe_ms: float
    cpu_s: float


class Probe:
    """A probe of the slowest answer of a broker."""

    def __init__(self) -> None:
        self.slowest_s = 0.0

    async def run(self, address: str) -> None:
        """Send requests until cancelled."""
        async with Admin(bootstrap_servers=address) as admin:
            while True:
                began = time.monotonic()
                await admin.describe_cluster()
                self.slowest_s = max(self.slowest_s, time.monotonic() - began)
                await asyncio.sleep(0.01)


@asynccontextmanager
async def probing(address: str) -> AsyncIterator[Probe]:
    """Run a probe until the block ends."""
    probe = Probe()
    task = asyncio.create_task(probe.run(address))
    try:
        yield probe
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def cpu_of_all_s(cluster: Cluster) -> float:
    """Return the CPU seconds that all nodes have used."""
    return sum(cpu_s(node.pid) for node in (*cluster.brokers, *cluster.quorum))


def logs_there(data: Path) -> int:
    """Return the number of the topic's logs on the brokers."""
    return sum(1 for _ in data.glob(f"broker-*/{TOPIC}-*"))


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Return once the condition holds. Raises TimeoutError after `DEADLINE_S`."""
    async with asyncio.timeout(DEADLINE_S):
        while not await condition():
            await asyncio.sleep(0.05)


async def timed(
    name: str,
    cluster: Cluster,
    probe: Probe,
    act: Callable[[], Awaitable[object]],
    done: Callable[[], Awaitable[bool]],
) -> Step:
    """Run and time one step."""
    probe.slowest_s = 0.0
    used, began = cpu_of_all_s(cluster), time.monotonic()
    await act()
    answered = time.monotonic()
    await until(done)
    ended = time.monotonic()
    return Step(
        name,
        round(answered - began, 3),
        round(ended - began, 3),
        round(probe.slowest_s * 1000, 1),
        round(cpu_of_all_s(cluster) - used, 2),
    )


async def steps(cluster: Cluster, data: Path, partitions: int) -> list[Step]:
    """Run all steps, in order."""
    placed = {index: [FIRST[(index + i) % 3] for i in range(3)] for index in range(partitions)}
    async with Admin(bootstrap_servers=cluster.bootstrap, request_timeout_ms=120_000) as admin:

        async def in_sync() -> bool:
            if TOPIC not in await admin.list_topics():
                return False
            (topic,) = await admin.describe_topics([TOPIC])
            found = topic.partitions.values()
            return (
                len(found) == partitions
                and logs_there(data) == 3 * partitions
                and all(
                    partition.leader >= 0 and len(partition.isr) == len(partition.replicas) == 3
                    for partition in found
                )
            )

        async def moved() -> bool:
            return not await admin.list_partition_reassignments() and await in_sync()

        async def led_evenly() -> bool:
            (topic,) = await admin.describe_topics([TOPIC])
            return all(partition.leader == partition.replicas[0] for partition in topic.partitions.values())

        async def gone() -> bool:
            return TOPIC not in await admin.list_topics() and not logs_there(data)

        async def spread() -> None:
            now = {(TOPIC, index): replicas for index, replicas in placed.items()}
            planned = plan(now, dict.fromkeys((*FIRST, *JOINING)))
            results = await admin.alter_partition_reassignments(
                {TopicPartition(*key): move.after for key, move in planned.moves.items()}
            )
            refused = {key: error for key, error in results.items() if error is not None}
            if refused:
                raise RuntimeError(f"refused: {refused}")

        topic = NewTopic(TOPIC, assignments=placed)
        first = cluster.broker(1)
        async with probing(f"127.0.0.1:{first.port}") as probe:
            return [
                await timed("create", cluster, probe, lambda: admin.create_topics([topic]), in_sync),
                await timed("spread over 5 brokers", cluster, probe, spread, moved),
                await timed("elect preferred leaders", cluster, probe, admin.elect_leaders, led_evenly),
                await timed("delete", cluster, probe, lambda: admin.delete_topics([TOPIC]), gone),
            ]


def main() -> None:
    """Run, print and record."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--partitions", type=int, default=1000, help="of the topic (1000)")
    parser.add_argument("--record", type=Path, default=RESULTS, help=f"where the figures go ({RESULTS.name})")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ottla-many-") as folder:
        data = Path(folder)
        with ottla_cluster(data, brokers=5, quorum=3) as cluster:
            found = uvloop.run(steps(cluster, data, arguments.partitions))
    table = Table("step", "answered (s)", "done (s)", "slowest probe (ms)", "CPU, all nodes (s)")
    for step in found:
        table.add_row(step.name, *(f"{value:g}" for value in list(asdict(step).values())[1:]))
    Console().print(table)
    arguments.record.parent.mkdir(parents=True, exist_ok=True)
    recorded = {
        "partitions": arguments.partitions,
        "replication_factor": 3,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "load_average": round(os.getloadavg()[0], 1),
        "steps": [asdict(step) for step in found],
    }
    arguments.record.write_text(json.dumps(recorded, indent=2) + "\n")


if __name__ == "__main__":
    main()

"""The costs of a partition, a connection and a group for a broker, and their growth: memory, descriptors, idle CPU.

    python -m benchmarks.scaling [--record benchmarks/results/scaling.json] [--plots docs/images]

One quorum node and one broker. Each series adds one kind of thing: partitions (one replica each), idle connections,
connections that write a record with acks=all every second, consumer groups with one member that sends heartbeats,
members of one group, or transactional producers. Each producer commits a record every ten seconds.

The broker's process is read after each step: resident memory, open descriptors, and CPU over a quiet window. Then a
bystander in a separate process writes single records with acks=all for some seconds; the reading is its slowest record.
A step of members is a new group of this size, timed from the first join to the last assignment. This includes the three
seconds that a new group waits for members.

`--plots` draws the series (needs matplotlib).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import platform
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from ottla import Producer
from ottla.client.admin import Admin, NewTopic
from ottla.client.connections.connection import Connection
from ottla.client.connections.metadata import BrokerAddress
from ottla.client.connections.opening import connect
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.records.record import encode_batch

from .clusters import Cluster, ottla_cluster
from .cpu import cpu_s

PARTITIONS = (0, 500, 1000, 2000, 10_000)
CONNECTIONS = (0, 500, 1000, 2000, 10_000)
BUSY = (0, 500, 1000, 2000)
GROUPS = (0, 1000, 2500, 5000, 20_000)
MEMBERS = (0, 100, 500, 1000)
PRODUCERS = (0, 100, 500, 1000)
QUIET_S = 5.0
AT_ONCE = 1_000
"""Number of groups whose members join together, as a new group waits three seconds for more members."""
HEARTBEAT_S = 3.0
COMMIT_EVERY_S = 10.0
WRITE_EVERY_S = 1.0
BYSTANDER_S = 5.0
BYSTANDER_PAUSE_S = 0.01
BYSTANDER, MOVES, WRITTEN = "bystander", "moves", "written"
SESSION_TIMEOUT_MS = 45_000
MEMBER_LINKS = 200
"""Number of connections for the members of a group. Real members have separate connections: an answer to a join may
hold up others on the same connection.
"""


@dataclass(frozen=True, slots=True)
class Reading:
    """The broker's process after a step."""

    series: str
    count: int
    memory_mb: float
    descriptors: int
    idle_cpu_percent: float
    step_s: float
    """Seconds that the step to this count took."""
    bystander_ms: float
    """Slowest of some hundred records that the bystander writes meanwhile."""


def memory_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    kilobytes = next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))
    return int(kilobytes) * 1024 / 1e6


async def read(cluster: Cluster, series: str, count: int, began: float) -> Reading:
    """Read the process over a window without activity except that of the series' things."""
    pid, took = cluster.brokers[0].pid, time.monotonic() - began
    await asyncio.sleep(1)
    before = cpu_s(pid)
    await asyncio.sleep(QUIET_S)
    idle_cpu_percent = round((cpu_s(pid) - before) / QUIET_S * 100, 2)
    descriptors = len(os.listdir(f"/proc/{pid}/fd"))
    slowest_s = await slowest_of_a_bystander(cluster.bootstrap)
    return Reading(
        series,
        count,
        round(memory_mb(pid), 1),
        descriptors,
        idle_cpu_percent,
        round(took, 2),
        round(1000 * slowest_s, 1),
    )


async def slowest_of_a_bystander(bootstrap: str) -> float:
    """Return the bystander's slowest record in seconds. It runs in a separate process, since this one is busy with the
    series.
    """
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return await asyncio.get_running_loop().run_in_executor(pool, stand_by, bootstrap)


def stand_by(bootstrap: str) -> float:
    """Return the slowest record of one producer."""
    return asyncio.run(write_one_by_one(bootstrap))


async def write_one_by_one(bootstrap: str) -> float:
    slowest_s = 0.0
    async with Producer(bootstrap_servers=bootstrap) as producer:
        await producer.send_and_wait(BYSTANDER, b"first")
        end = time.monotonic() + BYSTANDER_S
        while time.monotonic() < end:
            began = time.monotonic()
            await producer.send_and_wait(BYSTANDER, b"x")
            slowest_s = max(slowest_s, time.monotonic() - began)
            await asyncio.sleep(BYSTANDER_PAUSE_S)
    return slowest_s


# ---------------------------------------------------------------- the series


async def partitions(cluster: Cluster) -> AsyncIterator[Reading]:
    """Add topics of 50 empty partitions with one replica."""
    async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        made = 0
        for count in PARTITIONS:
            began = time.monotonic()
            while made < count:
                await admin.create_topics([NewTopic(f"many-{made}", 50, 1)])
                made += 50
            yield await read(cluster, "partitions", count, began)


async def connections(cluster: Cluster) -> AsyncIterator[Reading]:
    """Add connections that have negotiated their versions and send nothing more."""
    async with AsyncExitStack() as stack:
        held = 0
        for count in CONNECTIONS:
            began = time.monotonic()
            while held < count:
                stack.callback((await open_connection(cluster)).close)
                held += 1
            yield await read(cluster, "connections", count, began)


async def busy(cluster: Cluster) -> AsyncIterator[Reading]:
    """Add connections that each write a record of 100 B every second, to one of 12 partitions."""
    async with AsyncExitStack() as stack:
        admin = await stack.enter_async_context(Admin(bootstrap_servers=cluster.bootstrap))
        await admin.create_topics([NewTopic(WRITTEN, 12, 1)])
        (topic,) = await admin.describe_topics([WRITTEN])
        topic_id = topic.id
        writing: list[asyncio.Task[None]] = []
        try:
            for count in BUSY:
                began = time.monotonic()
                while len(writing) < count:
                    connection = await open_connection(cluster)
                    stack.callback(connection.close)
                    writing.append(asyncio.create_task(write_on(connection, topic_id, len(writing))))
                yield await read(cluster, "busy", count, began)
                for task in writing:
                    if task.done():
                        task.result()
        finally:
            for task in writing:
                task.cancel()


async def write_on(connection: Connection, topic_id: bytes, number: int) -> None:
    """Write one record after the other."""
    batch = encode_batch([(None, bytes(100), int(time.time() * 1000))])
    data = PartitionProduceData(index=number % 12, records=batch)
    request = ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(topic_id=topic_id, partition_data=[data])]
    )
    await asyncio.sleep(WRITE_EVERY_S * number / BUSY[-1])
    while True:
        began = time.monotonic()
        answer = await connection.request(request)
        code = answer.responses[0].partition_responses[0].error_code
        assert code == ErrorCode.NONE, ErrorCode.of(code)
        await asyncio.sleep(max(0.0, began + WRITE_EVERY_S - time.monotonic()))


async def open_connection(cluster: Cluster) -> Connection:
    host, _, port = cluster.bootstrap.partition(":")
    return await connect(BrokerAddress(0, host, int(port)), client_id="scaling")


class Member:
    """A group's only member, which owns no partition and stays."""

    def __init__(self, connection: Connection, group_id: str) -> None:
        self._connection, self._group_id = connection, group_id
        self._member_id, self._generation = "", -1
        self.others: list[str] = []
        """Ids of all members, if this member leads the group."""

    async def join(self) -> None:
        """Join as a client does: one request to get an id, and one with the id."""
        await self.ask_for_id()
        await self.join_together()
        await self.sync([self._member_id])

    async def ask_for_id(self) -> None:
        """Send the first request of joining, which returns the id."""
        answer = await self._connection.request(self._joining())
        assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.of(answer.error_code)
        self._member_id = answer.member_id

    async def join_together(self) -> None:
        """Send the second request of joining, which is answered when all members have joined."""
        answer = await self._connection.request(self._joining())
        assert answer.error_code == ErrorCode.NONE, ErrorCode.of(answer.error_code)
        self._generation = answer.generation_id
        self.others = [member.member_id for member in answer.members]

    def _joining(self) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=SESSION_TIMEOUT_MS,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\0\3" + bytes(12))],
        )

    async def sync(self, assigned: list[str]) -> None:
        """Get the assignment; the leader sends those of `assigned`."""
        assignments = [
            SyncGroupRequestAssignment(member_id=member, assignment=b"\0\3" + bytes(8)) for member in assigned
        ]
        synced = await self._connection.request(
            SyncGroupRequest(
                group_id=self._group_id,
                member_id=self._member_id,
                generation_id=self._generation,
                protocol_type="consumer",
                protocol_name="range",
                assignments=assignments,
            )
        )
        assert synced.error_code == ErrorCode.NONE, ErrorCode.of(synced.error_code)

    async def heartbeat(self) -> None:
        answer = await self._connection.request(
            HeartbeatRequest(
                group_id=self._group_id, member_id=self._member_id, generation_id=self._generation
            )
        )
        assert answer.error_code == ErrorCode.NONE, ErrorCode.of(answer.error_code)


async def groups(cluster: Cluster) -> AsyncIterator[Reading]:
    """Add groups of one member each, which sends a heartbeat every three seconds, over a few connections."""
    links = [await open_connection(cluster) for _ in range(8)]
    await coordinator_is_ready(links[0])
    members: list[Member] = []
    beating = asyncio.create_task(beat(members))
    try:
        for count in GROUPS:
            began = time.monotonic()
            while len(members) < count:
                new = [
                    Member(links[n % len(links)], f"group-{n}")
                    for n in range(len(members), min(count, len(members) + AT_ONCE))
                ]
                await asyncio.gather(*(member.join() for member in new))
                members += new
            yield await read(cluster, "groups", count, began)
            if beating.done():
                beating.result()
    finally:
        beating.cancel()
        for link in links:
            link.close()


async def members(cluster: Cluster) -> AsyncIterator[Reading]:
    """Add groups one after the other, each with more members, which stay and send heartbeats every three seconds."""
    links = [await open_connection(cluster) for _ in range(MEMBER_LINKS)]
    await coordinator_is_ready(links[0])
    joined: list[Member] = []
    beating = asyncio.create_task(beat(joined))
    try:
        for count in MEMBERS:
            began = time.monotonic()
            new = [Member(links[n % len(links)], f"of-{count}") for n in range(count)]
            await asyncio.gather(*(member.ask_for_id() for member in new))
            await asyncio.gather(*(member.join_together() for member in new))
            led = next((member for member in new if member.others), None)
            if led is not None:
                # The leader goes first: the other members wait for its assignment.
                await asyncio.gather(*(member.sync(led.others if member is led else []) for member in new))
            took = time.monotonic()
            joined[:] = new
            yield await read(cluster, "members", count, began + time.monotonic() - took)
            if beating.done():
                beating.result()
    finally:
        beating.cancel()
        for link in links:
            link.close()


async def producers(cluster: Cluster) -> AsyncIterator[Reading]:
    """Add transactional producers that each commit one record every ten seconds, spread evenly."""
    async with AsyncExitStack() as stack:
        admin = await stack.enter_async_context(Admin(bootstrap_servers=cluster.bootstrap))
        await admin.create_topics([NewTopic(MOVES, 12, 1)])
        committing: list[asyncio.Task[None]] = []
        try:
            for count in PRODUCERS:
                began = time.monotonic()
                for number in range(len(committing), count):
                    name = f"mover-{number}"
                    producer = Producer(bootstrap_servers=cluster.bootstrap, transactional_id=name)
                    await stack.enter_async_context(producer)
                    committing.append(asyncio.create_task(commit_on(producer, number)))
                yield await read(cluster, "producers", count, began)
                for task in committing:
                    if task.done():
                        task.result()
        finally:
            for task in committing:
                task.cancel()


async def commit_on(producer: Producer, number: int) -> None:
    """Commit transactions of one record, one after the other."""
    await asyncio.sleep(COMMIT_EVERY_S * number / PRODUCERS[-1])
    while True:
        began = time.monotonic()
        async with producer.transaction():
            await producer.send(MOVES, b"x", partition=number % 12)
        await asyncio.sleep(max(0.0, began + COMMIT_EVERY_S - time.monotonic()))


async def coordinator_is_ready(connection: Connection) -> None:
    """Wait for the coordinator: the first request creates __consumer_offsets."""
    asked = FindCoordinatorRequest(coordinator_keys=["group-0"])
    while (await connection.request(asked)).coordinators[0].error_code:
        await asyncio.sleep(0.1)


async def beat(members: list[Member]) -> None:
    """Send a heartbeat of every member once in `HEARTBEAT_S`, spread evenly."""
    while True:
        began = time.monotonic()
        for number, member in enumerate(list(members)):
            due = began + HEARTBEAT_S * number / len(members)
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            await member.heartbeat()
        await asyncio.sleep(max(0.1, began + HEARTBEAT_S - time.monotonic()))


SERIES: dict[str, Callable[[Cluster], AsyncIterator[Reading]]] = {
    "partitions": partitions,
    "connections": connections,
    "busy": busy,
    "groups": groups,
    "members": members,
    "producers": producers,
}


# ---------------------------------------------------------------- the report


def table(readings: list[Reading]) -> Table:
    found = Table(
        "series", "count", "memory MB", "descriptors", "idle CPU %", "step s", "slowest bystander ms"
    )
    for column in found.columns[1:]:
        column.justify = "right"
    for reading in readings:
        found.add_row(reading.series, *map(str, list(asdict(reading).values())[1:]))
    return found


def each(readings: list[Reading], series: str) -> dict[str, float]:
    """Return the cost of one more thing: the slope from the first reading of a series to the last."""
    own = [reading for reading in readings if reading.series == series]
    first, last = own[0], own[-1]
    added = last.count - first.count
    return {
        "memory_kb": round((last.memory_mb - first.memory_mb) * 1000 / added, 1),
        "descriptors": round((last.descriptors - first.descriptors) / added, 2),
        "cpu_ppm": round((last.idle_cpu_percent - first.idle_cpu_percent) * 1e4 / added, 1),
    }


def draw(readings: list[Reading], folder: Path) -> None:
    """Draw a picture for each series: memory and idle CPU by count."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    folder.mkdir(parents=True, exist_ok=True)
    for series in SERIES:
        own = [reading for reading in readings if reading.series == series]
        figure, memory = pyplot.subplots(figsize=(5, 3))
        counts = [reading.count for reading in own]
        memory.plot(counts, [reading.memory_mb for reading in own], "o-", color="tab:blue")
        memory.set_xlabel(series)
        memory.set_ylabel("memory, MB", color="tab:blue")
        memory.set_ylim(bottom=0)
        cpu = memory.twinx()
        cpu.plot(counts, [reading.idle_cpu_percent for reading in own], "s--", color="tab:red")
        cpu.set_ylabel("CPU, %", color="tab:red")
        cpu.set_ylim(0, max(5.0, *(reading.idle_cpu_percent * 1.2 for reading in own)))
        figure.tight_layout()
        figure.savefig(folder / f"cost-of-{series}.svg", metadata={"Date": None})
        pyplot.close(figure)


async def measure(chosen: list[str], console: Console) -> list[Reading]:
    readings: list[Reading] = []
    with Progress(console=console) as progress:
        bar = progress.add_task("measuring", total=len(chosen))
        for series in chosen:
            with tempfile.TemporaryDirectory(prefix="ottla-scaling-") as folder:
                settings = {
                    "offsets.topic.num.partitions": "50",
                    "offsets.topic.replication.factor": "1",
                    "group.initial.rebalance.delay.ms": "3000" if series == "members" else "0",
                }
                with ottla_cluster(Path(folder), brokers=1, quorum=1, settings=settings) as cluster:
                    async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
                        await admin.create_topics([NewTopic(BYSTANDER, 1, 1)])
                    async for reading in SERIES[series](cluster):
                        readings.append(reading)
                        progress.update(bar, description=f"{series}: {reading.count}")
            progress.advance(bar)
    return readings


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--series", nargs="+", choices=SERIES, default=list(SERIES))
    parser.add_argument("--record", type=Path)
    parser.add_argument("--plots", type=Path)
    arguments = parser.parse_args()
    console = Console()
    readings = asyncio.run(measure(arguments.series, console))
    console.print(table(readings))
    costs = {series: each(readings, series) for series in arguments.series}
    console.print("one more costs", costs)
    if arguments.record:
        told = {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "load_average": os.getloadavg()[0],
            "each": costs,
            "readings": [asdict(reading) for reading in readings],
        }
        arguments.record.write_text(json.dumps(told, indent=2) + "\n")
    if arguments.plots:
        draw(readings, arguments.plots)


if __name__ == "__main__":
    main()

"""Effects of disks on clients: readers of data larger than memory, and a slow disk of one broker.

    python -m benchmarks.disks [cold] [slow] [--gigabytes 1] [--seconds 15] [--record FILE]

Needs root, and the controllers `memory` and `blkio` of cgroups (version 1); `slow` also a loop device and ext4.

cold: one broker, and a topic of old records. A hot client writes 200 records of 1 KB in a second and reads them. It is
timed four times: alone; beside two readers of all old records while these are in memory; beside them when the broker
and its page cache have a tenth of the data's size; and when also its disk is limited to 20 MB/s of reads. The second
shows the readers' use of the processors, the third and fourth the additional effect of the disk.

slow: three brokers with three replicas, the last on a separate disk. A client writes 2 MB/s with acks=all. It is timed
before that disk is limited to writes of 256 KB/s, and after.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ottla import Admin, Consumer, NewTopic, Producer
from tests.faults.disks import ext4

from .client_queue import queue_record
from .clusters import Cluster, ottla_cluster
from .cpu import cpu_s
from .rounds import percentile, record

CGROUPS = Path("/sys/fs/cgroup")
SPAWN = multiprocessing.get_context("spawn")
OLD, HOT = "old", "hot"
COLD_READERS = 2
COLD_PARTITIONS = 4
RECORD_BYTES = 1_000
HOT_PER_SECOND, SLOW_PER_SECOND = 200, 2_000
SLOW_READ, SLOW_WRITE = 20_000_000, 256_000
RESIDENT_BYTES = 30_000_000
"""Memory of a busy broker without its page cache."""
DISK_MB = 2_000
NO_LIMIT = -1


# ---------------------------------------------------------------- limits


class Limits:
    """Limits of a process: memory including its page cache, and the read rate of a device."""

    def __init__(self, name: str) -> None:
        self._memory, self._blkio = CGROUPS / "memory" / name, CGROUPS / "blkio" / name

    def take(self, pid: int) -> None:
        """Apply the limits to this process. Memory that it has already is not counted."""
        for group in (self._memory, self._blkio):
            group.mkdir(exist_ok=True)
        for group in (self._memory, self._blkio):
            (group / "cgroup.procs").write_text(str(pid))

    def memory(self, size: int) -> None:
        """Limit the memory to `size` bytes; `NO_LIMIT` removes the limit."""
        (self._memory / "memory.limit_in_bytes").write_text(str(size))

    def reading(self, device: str, bytes_s: int) -> None:
        """Limit reads from a device to `bytes_s` bytes in a second."""
        (self._blkio / "blkio.throttle.read_bps_device").write_text(f"{device} {bytes_s}")

    def remove(self) -> None:
        """Remove the limits, after the process has ended."""
        for group in (self._memory, self._blkio):
            if group.exists():
                group.rmdir()


@contextmanager
def limits() -> Iterator[Limits]:
    """Yield the limits for one process, which must end within the block."""
    if not all(os.access(CGROUPS / kind / "cgroup.procs", os.W_OK) for kind in ("memory", "blkio")):
        raise SystemExit(
            f"this needs {CGROUPS}/memory and {CGROUPS}/blkio (cgroups version 1), and to write there"
        )
    made = Limits(f"ottla-disks-{os.getpid()}")
    try:
        yield made
    finally:
        made.remove()


def device_of(path: Path) -> str:
    """Return the numbers of the device that holds a file, in the form that cgroups use."""
    number = path.stat().st_dev
    return f"{os.major(number)}:{os.minor(number)}"


# ---------------------------------------------------------------- clients in separate processes


def hot_load(bootstrap: str, per_second: int, seconds: float, told: Any) -> None:
    """Run a client that writes and reads its own records; send its times to `told`."""
    told.put(asyncio.run(_hot_load(bootstrap, per_second, seconds)))


async def _hot_load(bootstrap: str, per_second: int, seconds: float) -> dict[str, float]:
    acknowledged: list[float] = []
    read: list[float] = []
    async with (
        Producer(bootstrap_servers=bootstrap) as producer,
        Consumer(HOT, bootstrap_servers=bootstrap, auto_offset_reset="latest") as consumer,
    ):

        async def follow() -> None:
            while True:
                for records in (await consumer.getmany(timeout_ms=500)).values():
                    now = time.monotonic()
                    read.extend(now - float(record.value.split(b" ", 1)[0]) for record in records)

        async def send() -> None:
            began = time.monotonic()
            await producer.send_and_wait(HOT, (b"%.6f " % began).ljust(RECORD_BYTES, b"x"))
            acknowledged.append(time.monotonic() - began)

        following = asyncio.create_task(follow())
        await asyncio.sleep(1)
        began, sending = time.monotonic(), set[asyncio.Task[None]]()
        count = 0
        while (passed := time.monotonic() - began) < seconds:
            for _ in range(count, int(passed * per_second)):
                sending.add(asyncio.create_task(send()))
            count = int(passed * per_second)
            await asyncio.sleep(0.002)
        await asyncio.gather(*sending)
        await asyncio.sleep(0.5)
        following.cancel()
    row = {}
    for name, times in (("acknowledged", acknowledged), ("read", read)):
        for percent in (50, 99, 100):
            row[f"{name} p{percent} ms"] = round(percentile(times, percent) * 1000, 2)
    return row


def read_all(bootstrap: str, number: int, count: Any) -> None:
    """Read the old records from the first on, over and over."""
    from confluent_kafka import Consumer as StockConsumer
    from confluent_kafka import TopicPartition

    consumer = StockConsumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "none",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    mine = [TopicPartition(OLD, index, 0) for index in range(number, COLD_PARTITIONS, COLD_READERS)]
    while True:
        consumer.assign(mine)
        ended = 0
        while ended < len(mine):
            for message in consumer.consume(1_000, 1.0):
                if message.error():
                    ended += 1
                else:
                    with count.get_lock():
                        count.value += len(message.value() or b"")


def fill(bootstrap: str, size: int) -> None:
    """Write the old records."""
    from confluent_kafka import Producer as StockProducer

    producer = StockProducer(
        {"bootstrap.servers": bootstrap, "linger.ms": 5, "queue.buffering.max.messages": 50_000}
    )
    value = os.urandom(RECORD_BYTES)
    for number in range(size // RECORD_BYTES):
        queue_record(producer, OLD, value, partition=number % COLD_PARTITIONS)
    if producer.flush(120):
        raise RuntimeError("the old records could not be written")


def timed(cluster: Cluster, per_second: int, seconds: float) -> dict[str, float]:
    """Run the hot client, and return its times with the brokers' CPU."""
    told = SPAWN.Queue()
    client = SPAWN.Process(target=hot_load, args=(cluster.bootstrap, per_second, seconds, told))
    used_s = sum(cpu_s(node.pid) for node in cluster.brokers)
    client.start()
    row: dict[str, float] = told.get(timeout=seconds + 120)
    client.join()
    row["broker CPU %"] = round(
        100 * (sum(cpu_s(node.pid) for node in cluster.brokers) - used_s) / seconds, 1
    )
    return row


@contextmanager
def cold_readers(bootstrap: str) -> Iterator[Any]:
    """Run the readers until the block ends; yield their count of bytes."""
    count = SPAWN.Value("q", 0)
    readers: list[BaseProcess] = [
        SPAWN.Process(target=read_all, args=(bootstrap, number, count), daemon=True)
        for number in range(COLD_READERS)
    ]
    for reader in readers:
        reader.start()
    try:
        yield count
    finally:
        for reader in readers:
            reader.kill()
            reader.join()


# ---------------------------------------------------------------- measurements


def cold(size: int, seconds: float) -> Iterator[dict[str, Any]]:
    """Yield a row for each of the four cases."""
    with (
        tempfile.TemporaryDirectory(prefix="ottla-cold-") as folder,
        limits() as limit,
        ottla_cluster(Path(folder), brokers=1, quorum=1) as cluster,
    ):
        asyncio.run(create(cluster, [NewTopic(OLD, COLD_PARTITIONS, 1), NewTopic(HOT, 1, 1)]))
        limit.take(cluster.brokers[0].pid)
        fill(cluster.bootstrap, size)
        os.sync()
        yield {"hot client": "alone", **timed(cluster, HOT_PER_SECOND, seconds)}
        yield beside_readers("beside readers of what is in memory", cluster, seconds)
        limit.memory(RESIDENT_BYTES + size // 10)
        yield beside_readers("beside readers of ten times the memory", cluster, seconds)
        limit.reading(device_of(Path(folder)), SLOW_READ)
        yield beside_readers("the same, from a slow disk", cluster, seconds)


def beside_readers(name: str, cluster: Cluster, seconds: float) -> dict[str, Any]:
    with cold_readers(cluster.bootstrap) as count:
        time.sleep(2)
        began, before = time.monotonic(), count.value
        row = timed(cluster, HOT_PER_SECOND, seconds)
        rate = (count.value - before) / (time.monotonic() - began)
    return {"hot client": name, **row, "cold MB/s": round(rate / 1e6, 1)}


def slow(seconds: float) -> Iterator[dict[str, Any]]:
    """Yield a row before, and a row after."""
    throttle = CGROUPS / "blkio" / "blkio.throttle.write_bps_device"
    with tempfile.TemporaryDirectory(prefix="ottla-slow-") as name:
        folder = Path(name)
        with ext4(folder / "data" / "broker-3", folder / "image", DISK_MB) as disk:
            device = device_of(disk.path)
            try:
                with ottla_cluster(folder / "data") as cluster:
                    asyncio.run(create(cluster, [NewTopic(HOT, 6, 3)]))
                    yield {"hot client": "three disks alike", **timed(cluster, SLOW_PER_SECOND, seconds)}
                    throttle.write_text(f"{device} {SLOW_WRITE}")
                    yield {"hot client": "one disk is slow", **timed(cluster, SLOW_PER_SECOND, seconds)}
                    yield {"hot client": "the same, later", **timed(cluster, SLOW_PER_SECOND, seconds)}
                    throttle.write_text(f"{device} 0")
            finally:
                throttle.write_text(f"{device} 0")


async def create(cluster: Cluster, topics: list[NewTopic]) -> None:
    async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        await admin.create_topics(topics)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="*", metavar="WHAT", help="cold, slow (both)")
    parser.add_argument("--gigabytes", type=float, default=1, help="of old records (1)")
    parser.add_argument("--seconds", type=float, default=15, help="of each load (15)")
    parser.add_argument("--record", type=Path)
    arguments = parser.parse_args()
    if unknown := set(arguments.what) - {"cold", "slow"}:
        parser.error(f"unknown {sorted(unknown)[0]!r}: choose from cold, slow")
    chosen = arguments.what or ["cold", "slow"]
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in chosen}
    for name in chosen:
        found = (
            cold(int(arguments.gigabytes * 1e9), arguments.seconds)
            if name == "cold"
            else slow(arguments.seconds)
        )
        for row in found:
            rows[name].append(row)
            print(row, flush=True)
        table = Table(*max(rows[name], key=len))
        for row in rows[name]:
            table.add_row(*map(str, row.values()))
        Console(width=160).print(table)
    if arguments.record is not None:
        record(arguments.record, gigabytes=arguments.gigabytes, load_average=os.getloadavg()[0], rows=rows)


if __name__ == "__main__":
    main()

"""Throughput by the number of processes on a host (`ottla broker --processes N`), compared with a model.

    python -m benchmarks.host_processes [--processes 1 2] [--seconds 10] [--record FILE]

One quorum node, and a host of N brokers. Topics have one replica, as no two replicas share a host. There are two loads,
each of two client processes: records of 1 KB in batches (librdkafka), and 16 producers with one record of 100 bytes in
flight each.

The model knows only the CPU that brokers and clients use for a record, and the number of cores. N brokers have at most
N cores, and all processes share the cores of the machine. If clients run elsewhere, as in production, only the first
bound remains. If the model predicts 2 processes from the CPU of 1, it is credible for 32.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ottla import Admin, NewTopic, Producer
from ottla.cli.nodes.java_properties import written
from ottla.cli.nodes.settings import read_settings

from .clusters import Cluster, ottla_cluster
from .cpu import tree_cpu_s
from .rounds import record

FIRST_ID = 11
PARTITIONS = 4
CLIENTS = 2
IN_FLIGHT = 8
"""Number of producers in each client process of the second load."""
READY_S = 60.0
WARM_UP_S = 2.0
BATCHED, SINGLE = "1 KB in batches", "100 B, one in flight"

Told = tuple[int, float]
"""Acknowledged records, and the CPU seconds that the client used for them."""


# ---------------------------------------------------------------- loads


def batched(bootstrap: str, topic: str, number: int, seconds: float) -> Told:
    """Write records of 1 KB to half of the partitions."""
    from confluent_kafka import Producer as StockProducer

    producer = StockProducer(
        {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5, "batch.size": 262_144, "log_level": 0}
    )
    value, partitions = os.urandom(1_000), range(number, PARTITIONS, CLIENTS)
    count, used_s, end = 0, 0.0, 0.0
    began = time.monotonic()

    def acknowledged(error: object, message: object) -> None:
        nonlocal count
        count += error is None

    while not end or time.monotonic() < end:
        if not end and time.monotonic() > began + WARM_UP_S:
            count, used_s, end = 0, time.process_time(), time.monotonic() + seconds
        try:
            for partition in partitions:
                for _ in range(64):
                    producer.produce(topic, value, partition=partition, on_delivery=acknowledged)
            producer.poll(0)
        except BufferError:
            producer.poll(0.005)
    told = count, time.process_time() - used_s
    producer.purge()
    return told


def single(bootstrap: str, topic: str, number: int, seconds: float) -> Told:
    """Run several producers with one record in flight each."""
    return asyncio.run(_single(bootstrap, topic, number, seconds))


async def _single(bootstrap: str, topic: str, number: int, seconds: float) -> Told:
    counts = [0] * IN_FLIGHT
    end = time.monotonic() + WARM_UP_S + seconds

    async def write(place: int) -> None:
        partition = (number + CLIENTS * place) % PARTITIONS
        async with Producer(bootstrap_servers=bootstrap, linger_ms=0) as producer:
            while time.monotonic() < end:
                await producer.send_and_wait(topic, bytes(100), partition=partition)
                counts[place] += 1

    writing = [asyncio.create_task(write(place)) for place in range(IN_FLIGHT)]
    await asyncio.sleep(WARM_UP_S)
    before, used_s = sum(counts), time.process_time()
    await asyncio.sleep(end - time.monotonic())
    told = sum(counts) - before, time.process_time() - used_s
    await asyncio.gather(*writing)
    return told


LOADS: dict[str, Callable[[str, str, int, float], Told]] = {BATCHED: batched, SINGLE: single}


# ---------------------------------------------------------------- a host


@contextmanager
def host(cluster: Cluster, folder: Path, processes: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run N brokers under one supervisor, beside the cluster's own broker."""
    folder.mkdir()
    beside = cluster.brokers[0]
    settings = read_settings(folder.parent / "cluster" / "config" / f"broker-{beside.id}.properties")
    settings |= {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(folder / "data")}
    for name in ("advertised.listeners", "metrics.listener"):
        settings.pop(name, None)
    file = folder / "broker.properties"
    file.write_text(written(settings))
    argv = [sys.executable, "-m", "ottla", "broker", "-c", str(file)]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*argv, "--processes", str(processes), "--id", str(FIRST_ID)],
            cwd=beside.cwd,
            env=beside.env,
            stdout=log,
            stderr=log,
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


async def make_topics(cluster: Cluster, processes: int) -> None:
    """Create topics spread over the brokers of the host, once they have registered."""
    ids = set(range(FIRST_ID, FIRST_ID + processes))
    placed = {index: [FIRST_ID + index % processes] for index in range(PARTITIONS)}
    async with Admin(bootstrap_servers=cluster.bootstrap) as admin, asyncio.timeout(READY_S):
        while not ids <= {broker.id for broker in (await admin.describe_cluster()).brokers}:
            await asyncio.sleep(0.1)
        await admin.create_topics(
            [NewTopic(f"load-{number}", assignments=placed) for number in range(len(LOADS))]
        )


def measure(
    cluster: Cluster, supervisor: subprocess.Popen[bytes], name: str, topic: str, seconds: float
) -> dict[str, float]:
    """Return records per second, and CPU per record of brokers and of clients."""
    spawn = multiprocessing.get_context("spawn")
    with spawn.Pool(CLIENTS) as pool:
        running = [
            pool.apply_async(LOADS[name], (cluster.bootstrap, topic, number, seconds))
            for number in range(CLIENTS)
        ]
        time.sleep(WARM_UP_S + 1.5)
        used_s, began = tree_cpu_s(supervisor.pid), time.monotonic()
        time.sleep(seconds / 2)
        share = (tree_cpu_s(supervisor.pid) - used_s) / (time.monotonic() - began)
        told = [process.get(seconds + READY_S) for process in running]
    rate = sum(count for count, _ in told) / seconds
    return {
        "records_s": round(rate),
        "broker_cores": round(share, 2),
        "broker_us": round(share / rate * 1e6, 2),
        "client_us": round(sum(cpu for _, cpu in told) / seconds / rate * 1e6, 2),
    }


def predicted(processes: int, broker_us: float, client_us: float, cores: int) -> tuple[float, float]:
    """Return records per second: with clients on the same cores, and with clients elsewhere and cores to spare."""
    alone = processes * 1e6 / broker_us
    return min(alone, cores * 1e6 / (broker_us + client_us)), alone


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2], help="of the host (1 2)")
    parser.add_argument("--seconds", type=float, default=10, help="of each load (10)")
    parser.add_argument("--record", type=Path)
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for processes in arguments.processes:
        with tempfile.TemporaryDirectory(prefix="ottla-host-") as folder:
            base = Path(folder)
            with (
                ottla_cluster(base / "cluster", brokers=1, quorum=1) as cluster,
                host(cluster, base / "host", processes) as supervisor,
            ):
                asyncio.run(make_topics(cluster, processes))
                for number, name in enumerate(LOADS):
                    found = measure(cluster, supervisor, name, f"load-{number}", arguments.seconds)
                    rows.append({"processes": processes, "load": name, **found})
                    print(rows[-1], flush=True)
    report(rows)
    if arguments.record is not None:
        record(arguments.record, cores=os.cpu_count(), load_average=os.getloadavg()[0], rows=rows)


def report(rows: list[dict[str, Any]]) -> None:
    """Print a table; the model takes the CPU of a record from the first number of processes."""
    cores = os.cpu_count() or 1
    table = Table(
        "load",
        "processes",
        "records/s",
        "cores of brokers",
        "broker us",
        "client us",
        f"model, {cores} cores for all",
        "model, clients elsewhere",
    )
    first = {row["load"]: row for row in reversed(rows)}
    for row in sorted(rows, key=lambda row: str(row["load"])):
        basis = first[row["load"]]
        here, alone = predicted(row["processes"], basis["broker_us"], basis["client_us"], cores)
        numbers = [
            row["processes"],
            row["records_s"],
            row["broker_cores"],
            row["broker_us"],
            row["client_us"],
        ]
        table.add_row(row["load"], *map(str, numbers), f"{here:,.0f}", f"{alone:,.0f}")
    Console(width=140).print(table)


if __name__ == "__main__":
    main()

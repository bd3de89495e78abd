"""The Python clients, with asyncio and without: records of 100 bytes per second, and the client's CPU for one.

    python -m benchmarks.sync_client [--rounds N] [--record FILE]

One broker, one partition, acks=all. The kinds of clients take turns; the table has medians over the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

import ottla
import ottla.sync

from .clusters import ottla_cluster
from .rounds import record

COUNT = 100_000
VALUE = bytes(100)
TOPIC = "speed"
Reading = tuple[float, float]
"""Records per second, CPU microseconds for one."""


@contextmanager
def timed(readings: list[Reading]) -> Iterator[None]:
    """One reading, for COUNT records in the block."""
    began_s, cpu_s = time.perf_counter(), time.process_time()
    yield
    took_s, cpu_s = time.perf_counter() - began_s, time.process_time() - cpu_s
    readings.append((COUNT / took_s, cpu_s / COUNT * 1e6))


def produce_asyncio(bootstrap: str, readings: list[Reading]) -> None:
    """`await send` for each, then `flush`."""

    async def produce() -> None:
        async with ottla.Producer(bootstrap_servers=bootstrap) as producer:
            await producer.send_and_wait(TOPIC, VALUE)
            with timed(readings):
                for _ in range(COUNT):
                    await producer.send(TOPIC, VALUE)
                await producer.flush()

    asyncio.run(produce())


def produce_sync(bootstrap: str, readings: list[Reading]) -> None:
    """`send` for each, then `flush`."""
    with ottla.sync.Producer(bootstrap_servers=bootstrap) as producer:
        producer.send_and_wait(TOPIC, VALUE)
        with timed(readings):
            for _ in range(COUNT):
                producer.send(TOPIC, VALUE)
            producer.flush()


def consume_asyncio(bootstrap: str, readings: list[Reading]) -> None:
    """`async for`."""

    async def consume() -> None:
        options = {"bootstrap_servers": bootstrap}
        async with ottla.Consumer(TOPIC, auto_offset_reset="earliest", **options) as consumer:
            await anext(consumer)
            with timed(readings):
                for _ in range(COUNT):
                    await anext(consumer)

    asyncio.run(consume())


def consume_sync(bootstrap: str, readings: list[Reading]) -> None:
    """`for`."""
    with ottla.sync.Consumer(TOPIC, auto_offset_reset="earliest", bootstrap_servers=bootstrap) as consumer:
        next(consumer)
        with timed(readings):
            for _ in islice(consumer, COUNT):
                pass


KINDS: dict[str, Callable[[str, list[Reading]], None]] = {
    "produce, asyncio": produce_asyncio,
    "produce, ottla.sync": produce_sync,
    "consume, asyncio": consume_asyncio,
    "consume, ottla.sync": consume_sync,
}


def main() -> int:
    """Measure and print one table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--record", type=Path)
    args = parser.parse_args()
    readings: dict[str, list[Reading]] = {kind: [] for kind in KINDS}
    with tempfile.TemporaryDirectory() as name, ottla_cluster(Path(name), brokers=1, quorum=1) as cluster:
        with ottla.sync.Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.create_topics([ottla.NewTopic(TOPIC, 1, 1)])
        for _ in range(args.rounds):
            for kind, measure in KINDS.items():
                measure(cluster.bootstrap, readings[kind])
    table = Table("", "records/s", "CPU us")
    for kind, some in readings.items():
        table.add_row(kind, f"{median(one[0] for one in some):,.0f}", f"{median(one[1] for one in some):.1f}")
    Console().print(table)
    if args.record is not None:
        record(args.record, readings=readings)
    return 0


if __name__ == "__main__":
    sys.exit(main())

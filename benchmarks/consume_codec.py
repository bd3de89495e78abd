"""Reading rates with the record codec in C and in Python, alone and in the consumer, compared with confluent-kafka.

    python -m benchmarks.consume_codec [--rounds N] [--record FILE]

The first part needs no broker: records of a batch decoded and encoded per second. The second part has one broker, one
partition, batches of up to 1 MB, and clients that take turns, each in a separate process: records per second, the
client's CPU for each, and the longest time that its event loop was blocked, in CPU time. Medians over the rounds.

librdkafka pauses for a second when 100,000 records wait, which is most of its time here; "eager" is without that.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import confluent_kafka
from rich.console import Console
from rich.table import Table

import ottla
import ottla.sync
from ottla.protocol.records.record import CODEC, Record, RecordCursor, encode_records
from ottla.testing import LocalCluster

from .client_queue import queue_record
from .rounds import record

SIZES = {100: 1_000_000, 1000: 200_000}
"""Number of records of each size in bytes."""
BATCH_BYTES = 1_000_000
PORTION = 500
TICK_S = 0.001
Reading = tuple[float, float, float]
"""Records per second, CPU microseconds for one, and the longest blocking of the loop in CPU milliseconds (0: no
loop).
"""
Client = Callable[[str, str, int], Reading]


class Stopwatch:
    """A stopwatch for `count` records, started at the first one."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._began_s, self._cpu_s = time.perf_counter(), time.process_time()

    def reading(self, kept_s: float = 0.0) -> Reading:
        """Return the reading up to now."""
        took_s, cpu_s = time.perf_counter() - self._began_s, time.process_time() - self._cpu_s
        return self._count / took_s, cpu_s / self._count * 1e6, kept_s * 1000


class Ticker:
    """A ticker that measures how long the event loop is blocked."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._last_s = time.thread_time()
        self._tick()

    def _tick(self) -> None:
        now_s = time.thread_time()
        self.longest_s = max(self.longest_s, now_s - self._last_s)
        self._last_s = now_s
        asyncio.get_running_loop().call_later(TICK_S, self._tick)


def by_portions(bootstrap: str, topic: str, count: int) -> Reading:
    """Read with `getmany`."""

    async def read() -> Reading:
        async with ottla.Consumer(
            topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest"
        ) as consumer:
            seen = len(await consumer.getmany(timeout_ms=None, max_records=1))
            watch, ticker = Stopwatch(count), Ticker()
            while seen < count:
                for records in (await consumer.getmany(timeout_ms=None, max_records=PORTION)).values():
                    seen += len(records)
            return watch.reading(ticker.longest_s)

    return asyncio.run(read())


def one_by_one(bootstrap: str, topic: str, count: int) -> Reading:
    """Read with `async for`."""

    async def read() -> Reading:
        async with ottla.Consumer(
            topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest"
        ) as consumer:
            await anext(consumer)
            seen, watch, ticker = 1, Stopwatch(count), Ticker()
            async for _ in consumer:
                seen += 1
                if seen == count:
                    break
            return watch.reading(ticker.longest_s)

    return asyncio.run(read())


def without_a_loop(bootstrap: str, topic: str, count: int) -> Reading:
    """Read with `for` and `ottla.sync`."""
    with ottla.sync.Consumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        next(consumer)
        seen, watch = 1, Stopwatch(count)
        for _ in consumer:
            seen += 1
            if seen == count:
                break
        return watch.reading()


def with_librdkafka(bootstrap: str, topic: str, count: int, **options: int) -> Reading:
    """Read with `confluent_kafka.Consumer.consume`, without looking at keys and values."""
    named = {name.replace("_", "."): value for name, value in options.items()}
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "benchmark", "check.crcs": True} | named
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
    seen = len(consumer.consume(num_messages=1))
    watch = Stopwatch(count)
    while seen < count:
        seen += len(consumer.consume(num_messages=PORTION, timeout=1))
    reading = watch.reading()
    consumer.close()
    return reading


CLIENTS: dict[str, tuple[Client, bool]] = {
    "getmany": (by_portions, False),
    "getmany, codec in Python": (by_portions, True),
    "async for": (one_by_one, False),
    "async for, codec in Python": (one_by_one, True),
    "ottla.sync, for": (without_a_loop, False),
    "confluent-kafka, consume": (with_librdkafka, False),
    "confluent-kafka, eager": (
        partial(with_librdkafka, queued_min_messages=1_000_000, fetch_queue_backoff_ms=1),
        False,
    ),
}


def codec_speed(size: int) -> tuple[float, float]:
    """Return records decoded and encoded per second, the best of some runs."""
    count = BATCH_BYTES // size
    records = [(None, bytes(size), 1_700_000_000_000 + index // 50) for index in range(count)]
    body = encode_records(records)[0]
    decoding_s, encoding_s = [], []
    for _ in range(20):
        began_s = time.perf_counter()
        encode_records(records)
        encoding_s.append(time.perf_counter() - began_s)
        cursor = RecordCursor(body, count, 0, 0, Record)
        began_s = time.perf_counter()
        while cursor.take(PORTION):
            pass
        decoding_s.append(time.perf_counter() - began_s)
    return count / min(decoding_s), count / min(encoding_s)


def fill(bootstrap: str) -> None:
    """Fill the topics; each is named by the size of its records."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 100, "batch.size": BATCH_BYTES, "acks": 1}
    )
    for size, count in SIZES.items():
        for _ in range(count):
            queue_record(producer, str(size), bytes(size))
    assert producer.flush(60) == 0


def in_child(*arguments: str, pure: bool) -> list[float]:
    """Run this program with these arguments, with the codec in Python or the default codec, and return its output."""
    environment = os.environ | ({"OTTLA_PURE_PYTHON": "1"} if pure else {})
    command = [sys.executable, "-m", "benchmarks.consume_codec", *arguments]
    found: list[float] = json.loads(subprocess.check_output(command, env=environment))
    return found


def show(title: str, columns: list[str], rows: dict[tuple[str, int], list[list[float]]], digits: int) -> None:
    """Print a table with a row of medians for each kind and size."""
    table = Table("", "bytes", *columns, title=title)
    for (kind, size), readings in rows.items():
        medians = (median(column) for column in zip(*readings, strict=True))
        shown = [f"{reading:,.{0 if reading > 1000 else digits}f}" for reading in medians]
        table.add_row(kind, str(size), *shown)
    Console().print(table)


def main() -> int:
    """Measure and print two tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--codec", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--read", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.codec is not None:
        print(json.dumps(codec_speed(args.codec)))
        return 0
    if args.read is not None:
        kind, bootstrap, size = args.read
        print(json.dumps(CLIENTS[kind][0](bootstrap, size, SIZES[int(size)])))
        return 0
    codecs: defaultdict[tuple[str, int], list[list[float]]] = defaultdict(list)
    clients: defaultdict[tuple[str, int], list[list[float]]] = defaultdict(list)
    for size in SIZES:
        for pure in (False, True) if CODEC == "C" else (True,):
            codecs["Python" if pure else "C", size].append(in_child("--codec", str(size), pure=pure))
    show("the codec alone, records/s", ["decode", "encode"], codecs, 0)
    with LocalCluster() as cluster:
        fill(cluster.bootstrap_servers)
        for _ in range(args.rounds):
            for size in SIZES:
                for kind, (_, pure) in CLIENTS.items():
                    reading = in_child("--read", kind, cluster.bootstrap_servers, str(size), pure=pure)
                    clients[kind, size].append(reading)
    show("clients", ["records/s", "CPU us", "loop kept, ms"], clients, 1)
    if args.record is not None:
        rows = {f"{kind}, {size}": readings for (kind, size), readings in (codecs | clients).items()}
        record(args.record, readings=rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())

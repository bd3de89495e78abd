"""Rates of sending and reading records of 100 bytes as pyarrow columns, compared with single records.

    python -m benchmarks.columns [--rounds N] [--record FILE]

The first part needs no broker, and takes the best of some runs: batches with their CRCs become a RecordBatch, and a
table becomes batches with their CRCs, without keys and with keys hashed for 12 partitions. The second part has one
broker, one partition, acks=all, and clients that take turns: records per second, and the client's CPU for each. Medians
over the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median

import pyarrow as pa
from rich.console import Console
from rich.table import Table

import ottla
from ottla.client.consuming.columns.arrow_batch import record_batch
from ottla.client.consuming.fetched import FetchedRecords
from ottla.client.producing.appending import TopicBatches
from ottla.client.producing.columns.sending import RowPlacement, batches, place
from ottla.client.producing.columns.source import ColumnSource
from ottla.client.producing.partitioner import StickyChoice
from ottla.protocol.records.record import CODEC, Columns, encode_batch, encode_batch_of
from ottla.protocol.records.record_batch import patch_offset_and_epoch
from ottla.protocol.records.record_columns import column_buffers
from ottla.testing import LocalCluster

from .rounds import record

SIZE = 100
CODEC_COUNT = 100_000
COUNT = 2_000_000
ONE_BY_ONE = 200_000
"""Number of single records, which are slower."""
BATCH_BYTES = 256 * 1024
HERE = ottla.TopicPartition("t", 0)
Reading = tuple[float, float]
"""Records per second, and CPU microseconds for one record."""


def timed(count: int, times: int, work: Callable[[], object]) -> Reading:
    """Return the best of `times` runs."""
    readings = []
    for _ in range(times):
        began_s, cpu_s = time.perf_counter(), time.process_time()
        work()
        took_s, cpu_s = time.perf_counter() - began_s, time.process_time() - cpu_s
        readings.append((count / took_s, cpu_s / count * 1e6))
    return max(readings)


def table(count: int, *, keys: bool) -> pa.Table:
    """Make rows with values of SIZE bytes, and keys of 8 bytes."""
    columns = {"value": pa.array([bytes(SIZE)], pa.binary()).take(pa.array([0] * count))}
    if keys:
        columns["key"] = pa.array([b"%08d" % (index % 9973) for index in range(count)])
    return pa.table(columns)


def decoding() -> Reading:
    """Measure the decoding part of `fetch_arrow`."""
    per_batch = BATCH_BYTES // (SIZE + 21)
    batch = encode_batch([(None, bytes(SIZE), 1_700_000_000_000 + index) for index in range(per_batch)])
    data = bytearray()
    for number in range(CODEC_COUNT // per_batch):
        placed = bytearray(batch)
        patch_offset_and_epoch(placed, 0, number * per_batch, 0)
        data += placed
    count = CODEC_COUNT // per_batch * per_batch

    def decode() -> None:
        fetched, columns = FetchedRecords(HERE, memoryview(data), 0), Columns()
        while fetched.take_into(columns, count):
            pass
        assert record_batch(column_buffers(columns.finish()), [(HERE, count)]).num_rows == count

    return timed(count, 30, decode)


def encoding(*, keys: bool) -> Reading:
    """Measure the encoding part of `send_arrow`, before requests are made."""
    data = table(CODEC_COUNT, keys=keys)

    def encode() -> None:
        choice = StickyChoice(BATCH_BYTES, random.randrange)
        placement = RowPlacement(12, range(12), TopicBatches(12), choice)
        source = ColumnSource(data, key="key", value="value", partition=None, timestamp=None, headers=None)
        for block in source.blocks():
            block.rows.first_above(1 << 20)
            for batch in batches(block, place(block, None, placement), 12, BATCH_BYTES):
                encode_batch_of(batch.records)

    return timed(CODEC_COUNT, 30, encode)


async def send_columns(bootstrap: str, watch: Callable[[int], None]) -> int:
    """Send one table with `send_arrow`."""
    data = table(COUNT, keys=False)
    async with ottla.Producer(bootstrap_servers=bootstrap) as producer:
        await producer.send_and_wait("columns", b"the first")
        watch(0)
        await (await producer.send_arrow("columns", data))
        watch(COUNT)
    return COUNT


async def send_records(bootstrap: str, watch: Callable[[int], None]) -> int:
    """Send each record with `send`."""
    value = bytes(SIZE)
    async with ottla.Producer(bootstrap_servers=bootstrap) as producer:
        await producer.send_and_wait("records", b"the first")
        watch(0)
        for _ in range(ONE_BY_ONE):
            await producer.send("records", value)
        await producer.flush()
        watch(ONE_BY_ONE)
    return ONE_BY_ONE


def consumer_of(topic: str, bootstrap: str) -> ottla.Consumer:
    """Return a consumer that reads a topic from its beginning, in large pieces."""
    return ottla.Consumer(
        topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", max_partition_fetch_bytes=4 << 20
    )


async def read_columns(bootstrap: str, watch: Callable[[int], None]) -> int:
    """Read all records with `fetch_arrow`."""
    async with consumer_of("columns", bootstrap) as consumer:
        seen = 0
        while seen < COUNT:
            seen += (await consumer.fetch_arrow(timeout_ms=None, max_records=None if seen else 1)).num_rows
            if seen == 1:
                watch(0)
        watch(COUNT)
    return COUNT


async def read_records(bootstrap: str, watch: Callable[[int], None]) -> int:
    """Read a sufficient number of records with `getmany`."""
    async with consumer_of("columns", bootstrap) as consumer:
        seen = len(await consumer.getmany(timeout_ms=None, max_records=1))
        watch(0)
        while seen < ONE_BY_ONE:
            found = await consumer.getmany(timeout_ms=None, max_records=5_000)
            seen += sum(map(len, found.values()))
        watch(ONE_BY_ONE)
    return ONE_BY_ONE


def through_a_broker(work: Callable[[str, Callable[[int], None]], Awaitable[int]], bootstrap: str) -> Reading:
    """Run one client in this process, and measure between its two calls of `watch`."""
    marks: list[tuple[float, float]] = []

    async def run() -> int:
        return await work(bootstrap, lambda seen: marks.append((time.perf_counter(), time.process_time())))

    count = asyncio.run(run())
    (began_s, cpu_began_s), (ended_s, cpu_ended_s) = marks
    return count / (ended_s - began_s), (cpu_ended_s - cpu_began_s) / count * 1e6


def main() -> int:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--record", type=Path)
    args = parser.parse_args()
    readings: defaultdict[str, list[Reading]] = defaultdict(list)
    for _ in range(args.rounds):
        readings["batches to columns"].append(decoding())
        readings["columns to batches"].append(encoding(keys=False))
        readings["columns to batches, with keys"].append(encoding(keys=True))
    for _ in range(args.rounds):
        with LocalCluster() as cluster:
            where = cluster.bootstrap_servers
            readings["send_arrow"].append(through_a_broker(send_columns, where))
            readings["send"].append(through_a_broker(send_records, where))
            readings["fetch_arrow"].append(through_a_broker(read_columns, where))
            readings["getmany"].append(through_a_broker(read_records, where))
    shown = Table("", "records/s", "CPU us", title=f"records of {SIZE} bytes, codec in {CODEC}")
    for kind, some in readings.items():
        speed, cpu_us = (median(column) for column in zip(*some, strict=True))
        shown.add_row(kind, f"{speed:,.0f}", f"{cpu_us:.2f}")
    Console().print(shown)
    if args.record is not None:
        record(args.record, readings=readings)
    return 0


if __name__ == "__main__":
    sys.exit(main())

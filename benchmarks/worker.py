"""Records that a Worker's handlers finish per second, beside other loops: plain reading, aiokafka, and libraries that
are installed.

    python -m benchmarks.worker [--records N] [--rounds N] [--record FILE]

One broker, a topic of 8 partitions with 1,000 keys, and two handlers: one does nothing, one sleeps for 10 ms.
The plain loops work on one record at a time. Two libraries are measured if they are installed: FastStream with 64
records at a time in no order (`max_workers`), and pyrallel-consumer with 64 records at a time in the order of keys. The
table has the best round of each, and the processor's time for a record, which other programs of the machine disturb
less.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import math
import resource
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from aiokafka import AIOKafkaConsumer

from ottla import Consumer, Producer, Worker, WorkerRecord
from ottla.testing import LocalCluster

from .rounds import record

TOPIC = "worker-benchmark"
PARTITIONS, KEYS, CONCURRENCY = 8, 1_000, 64
VALUE = b"x" * 100
Handle = Callable[[], Awaitable[None]]
DRAIN_RECORDS, DRAIN_SLEEP_S = 64, 1.0


class Counted:
    """A handler's work, and the time from its first to its last record."""

    def __init__(self, sleep_s: float, count: int) -> None:
        self.ended = asyncio.Event()
        self._sleep_s = sleep_s
        self._count = count
        self._done = 0
        self._first_s = self._last_s = self._first_cpu_s = self._last_cpu_s = 0.0

    async def work(self) -> None:
        """Do a record's work."""
        if not self._first_s:
            self._first_s, self._first_cpu_s = time.perf_counter(), time.process_time()
        if self._sleep_s:
            await asyncio.sleep(self._sleep_s)
        self._done += 1
        if self._done == self._count:
            self._last_s, self._last_cpu_s = time.perf_counter(), time.process_time()
            self.ended.set()

    @property
    def per_second(self) -> float:
        """The finished records per second."""
        return self._count / (self._last_s - self._first_s)

    @property
    def cpu_us(self) -> float:
        """The processor's time of this process for a record, in microseconds."""
        return (self._last_cpu_s - self._first_cpu_s) / self._count * 1e6


async def with_worker(servers: str, group: str, counted: Counted) -> None:
    """Work with Ottla's Worker."""
    worker = Worker(TOPIC, bootstrap_servers=servers, group_id=group, concurrency=CONCURRENCY)

    @worker.handler
    async def handle(record: WorkerRecord) -> None:
        await counted.work()

    running = asyncio.create_task(worker.run())
    await counted.ended.wait()
    worker.stop()
    await running


async def with_consumer(servers: str, group: str, counted: Counted) -> None:
    """Work in a plain loop over Ottla's Consumer."""
    async with Consumer(
        TOPIC,
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=True,
    ) as consumer:
        async for _ in consumer:
            await counted.work()
            if counted.ended.is_set():
                return


async def with_aiokafka(servers: str, group: str, counted: Counted) -> None:
    """Work in a plain loop over aiokafka's consumer."""
    consumer = AIOKafkaConsumer(
        TOPIC, bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest"
    )
    await consumer.start()
    try:
        async for _ in consumer:
            await counted.work()
            if counted.ended.is_set():
                return
    finally:
        await consumer.stop()


async def with_faststream(servers: str, group: str, counted: Counted) -> None:
    """Work with FastStream, 64 records at a time."""
    from faststream.kafka import KafkaBroker

    broker = KafkaBroker(servers, logger=None)  # By default it logs each record twice.

    async def handle(_: bytes) -> None:
        await counted.work()

    broker.subscriber(TOPIC, group_id=group, auto_offset_reset="earliest", max_workers=CONCURRENCY)(handle)
    async with broker:
        await broker.start()
        await counted.ended.wait()


async def with_pyrallel(servers: str, group: str, counted: Counted) -> None:
    """Work with pyrallel-consumer's engine for coroutines, 64 records at a time."""
    from pyrallel_consumer import PyrallelConsumer
    from pyrallel_consumer.config import (
        ExecutionConfig,
        KafkaConfig,
        ParallelConsumerConfig,
    )

    async def handle(_: object) -> None:
        await counted.work()

    execution = ExecutionConfig(mode="async", max_in_flight=CONCURRENCY)
    settings = KafkaConfig(
        BOOTSTRAP_SERVERS=servers,
        CONSUMER_GROUP=group,
        dlq_enabled=False,
        parallel_consumer=ParallelConsumerConfig(ordering_mode="key_hash", execution=execution),
    )
    consumer = PyrallelConsumer(settings, handle, TOPIC)
    await consumer.start()
    try:
        await counted.ended.wait()
    finally:
        await consumer.stop()


LOOPS = {
    "Worker": with_worker,
    "async for over Consumer": with_consumer,
    "aiokafka": with_aiokafka,
}
if importlib.util.find_spec("faststream") is not None:
    LOOPS["FastStream, max_workers=64"] = with_faststream
if importlib.util.find_spec("pyrallel_consumer") is not None:
    LOOPS["pyrallel-consumer, max_in_flight=64"] = with_pyrallel
IN_ORDER = ("async for over Consumer", "aiokafka")
"""The loops that work on one record at a time, and get fewer records of 10 ms."""


async def fill(servers: str, count: int) -> None:
    """Write the records."""
    async with Producer(bootstrap_servers=servers) as producer:
        for number in range(count):
            await producer.send(TOPIC, VALUE, b"%d" % (number % KEYS))


async def drain_s(servers: str) -> float:
    """Return the seconds from `stop` to the end of a worker with 64 handlers that sleep for a second."""
    worker = Worker(TOPIC, bootstrap_servers=servers, group_id=f"drain-{time.time_ns()}", ordering="none")
    started, stopped_s = 0, 0.0

    @worker.handler
    async def handle(record: WorkerRecord) -> None:
        nonlocal started, stopped_s
        started += 1
        if started == DRAIN_RECORDS:
            stopped_s = time.perf_counter()
            worker.stop()
        await asyncio.sleep(DRAIN_SLEEP_S)

    await worker.run()
    return time.perf_counter() - stopped_s


async def measure(servers: str, records: int, rounds: int) -> dict[str, float]:
    """Return the readings by name."""
    readings: dict[str, float] = {}
    await fill(servers, records)
    for number in range(rounds):
        for name, loop in LOOPS.items():
            for handler, sleep_s in (("no-op", 0.0), ("10 ms", 0.01)):
                count = records if not sleep_s else min(records, 300 if name in IN_ORDER else 10_000)
                counted = Counted(sleep_s, count)
                await loop(servers, f"{name}-{handler}-{number}-{time.time_ns()}".replace(" ", ""), counted)
                key = f"{name}, {handler}, records/s"
                readings[key] = max(readings.get(key, 0.0), round(counted.per_second))
                key = f"{name}, {handler}, CPU us/record"
                readings[key] = min(readings.get(key, math.inf), round(counted.cpu_us, 1))
        drained_s = round(await drain_s(servers), 3)
        readings["drain of 64 x 1 s, s"] = min(readings.get("drain of 64 x 1 s, s", drained_s), drained_s)
    readings["peak RSS, MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return readings


def main() -> int:
    """Measure, print a table, and append the readings to a file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.worker", description=__doc__)
    parser.add_argument("--records", type=int, default=50_000, help="records in the topic")
    parser.add_argument("--rounds", type=int, default=3, help="rounds, of which the best counts")
    parser.add_argument("--record", type=Path, help="file to which the readings are appended")
    chosen = parser.parse_args()
    with LocalCluster() as cluster:
        cluster.create_topic(TOPIC, partitions=PARTITIONS)
        readings = asyncio.run(measure(cluster.bootstrap_servers, chosen.records, chosen.rounds))
    for name, value in readings.items():
        print(f"{name:50} {value:>12,}")
    if chosen.record is not None:
        record(chosen.record, rounds=chosen.rounds, worker=readings)
    return 0


if __name__ == "__main__":
    sys.exit(main())

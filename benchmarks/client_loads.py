"""Loads of one client in a separate process, for `benchmarks.clients`: all its writing, or all its reading.

    python -m benchmarks.client_loads CLIENT produce|consume BOOTSTRAP SCALE

Prints the readings as JSON. All clients ask for the result of every record, and look at every value. Clients have their
default settings, except for acks=all, no linger with one record in flight, and batches of up to 256 KB for aiokafka and
Ottla (librdkafka's are of 1 MB, after 5 ms). A process imports only the measured client: Python's garbage collector
scans all objects of a process, and the event loop stops meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import ottla
import ottla.sync

from .rounds import Row, percentile

SMALL, LARGE = "100 B", "1 KB"
SIZES = {SMALL: (100, 200_000), LARGE: (1_000, 50_000)}
"""Bytes of a value, and the number of records at scale 1."""
BATCHES = "1 MB batches"
BATCH_BYTES = 1_000_000
ONE_BY_ONE = 1_000
WINDOW = 10_000
"""Number of records after which a program waits for their results."""
PROBED_WINDOW = 2_000
"""Shorter window for runs with a probe: checking known results blocks the loop, which is the program's standstill and
not the client's.
"""
POLL = 1_000
PROBE_S = 0.001
READ = "read"
"""Prefix of the topics to read, which hold this number of records of each size."""


def main() -> None:
    """Print one row."""
    client, what, bootstrap, scale = sys.argv[1:]
    counts = {name: (size, int(count * float(scale))) for name, (size, count) in SIZES.items()}
    row = {"produce": PRODUCE, "consume": CONSUME}[what][client](bootstrap, counts)
    row[f"{what}: peak memory, MB"] = peak_memory_mb()
    print(json.dumps(row))


def peak_memory_mb() -> float:
    """Return the peak resident memory. `ru_maxrss` would include that of the parent process."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


Counts = dict[str, tuple[int, int]]


@contextmanager
def timed(row: Row, what: str, count: int) -> Iterator[None]:
    """Record rate and CPU (of all threads) for `count` records in the block."""
    began_s, cpu_s = time.perf_counter(), time.process_time()
    yield
    took_s, cpu_s = time.perf_counter() - began_s, time.process_time() - cpu_s
    row[f"{what}, records/s"] = count / took_s
    row[f"{what}, CPU us"] = cpu_s / count * 1e6


@contextmanager
def waits(row: Row) -> Iterator[list[float]]:
    """Record the percentiles of the seconds that each record in flight took."""
    took_s: list[float] = []
    yield took_s
    for percent in (50, 99):
        row[f"one in flight, p{percent} ms"] = percentile(took_s, percent) * 1000


@asynccontextmanager
async def probed(row: Row, what: str) -> AsyncIterator[None]:
    """Measure the longest delay of a task that is due, and the most CPU that the loop's thread used in such a delay.

    On a machine with other work, the rest of the delay was spent there.
    """
    longest_s = most_cpu_s = 0.0

    async def probe() -> None:
        nonlocal longest_s, most_cpu_s
        while True:
            due_s, cpu_s = time.perf_counter() + PROBE_S, time.thread_time()
            await asyncio.sleep(PROBE_S)
            longest_s = max(longest_s, time.perf_counter() - due_s)
            most_cpu_s = max(most_cpu_s, time.thread_time() - cpu_s)

    task = asyncio.create_task(probe())
    await asyncio.sleep(0.01)
    longest_s = most_cpu_s = 0.0
    yield
    await asyncio.sleep(0)
    task.cancel()
    row[f"{what} {BATCHES}: loop blocked, ms"] = longest_s * 1000
    row[f"{what} {BATCHES}: loop blocked by its own work, ms"] = most_cpu_s * 1000


# asyncio: the methods of Ottla's clients and aiokafka's have the same names


def _ottla_producer(bootstrap: str, batch_bytes: int | None = None) -> Any:
    sizes: Any = (
        {} if batch_bytes is None else {"batch_size": batch_bytes, "max_request_size": 2 * batch_bytes}
    )
    return ottla.Producer(bootstrap_servers=bootstrap, **sizes)


def _run_on_uvloop(load: Coroutine[Any, Any, Row]) -> Row:
    import uvloop

    return uvloop.run(load)


def _aiokafka_producer(bootstrap: str, batch_bytes: int | None = None) -> Any:
    import aiokafka

    sizes: Any = {"max_batch_size": batch_bytes or 256 * 1024, "max_request_size": 2 * BATCH_BYTES}
    return aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", **sizes)


def _ottla_consumer(bootstrap: str, topic: str) -> Any:
    return ottla.Consumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest")


def _aiokafka_consumer(bootstrap: str, topic: str) -> Any:
    import aiokafka

    return aiokafka.AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest")


async def _send_all(producer: Any, topic: str, value: bytes, count: int, many: int = WINDOW) -> None:
    earlier: list[Any] = []
    window: list[Any] = []
    for _ in range(count):
        window.append(await producer.send(topic, value))
        if len(window) == many:
            for delivery in earlier:
                await delivery
            earlier, window = window, []
    await producer.flush()
    for delivery in earlier + window:
        await delivery


async def _produce_async(make: Callable[..., Any], bootstrap: str, counts: Counts) -> Row:
    row: Row = {}
    async with make(bootstrap) as producer:
        for name, (size, count) in counts.items():
            await _send_all(producer, name_of(name), bytes(size), count // 10)
            with timed(row, f"produce {name}", count):
                await _send_all(producer, name_of(name), bytes(size), count)
        with waits(row) as took_s:
            for _ in range(ONE_BY_ONE):
                began_s = time.perf_counter()
                await producer.send_and_wait(name_of(LARGE), bytes(1000))
                took_s.append(time.perf_counter() - began_s)
    async with make(bootstrap, BATCH_BYTES) as producer:
        size, count = counts[LARGE]
        async with probed(row, "produce"):
            await _send_all(producer, name_of(LARGE), bytes(size), count, PROBED_WINDOW)
    return row


async def _consume_async(make: Callable[..., Any], bootstrap: str, counts: Counts) -> Row:
    row: Row = {}
    for name, (_, count) in counts.items():
        async with make(bootstrap, READ + name_of(name)) as consumer:
            await _read_all(consumer, 1)
            with timed(row, f"consume {name}", count):
                await _read_all(consumer, count - 1)
        async with make(bootstrap, READ + name_of(name)) as consumer:
            await consumer.getone()
            with timed(row, f"consume {name} one by one", count):
                for _ in range(count - 1):
                    len((await consumer.getone()).value)
    async with make(bootstrap, READ + name_of(BATCHES)) as consumer, probed(row, "consume"):
        await _read_all(consumer, counts[LARGE][1])
    return row


async def _read_all(consumer: Any, count: int) -> None:
    while count > 0:
        for records in (await consumer.getmany(timeout_ms=1000, max_records=min(POLL, count))).values():
            for record in records:
                len(record.value)
            count -= len(records)


# clients without an event loop


def _produce_sync(bootstrap: str, counts: Counts) -> Row:
    row: Row = {}

    def send_all(name: str, value: bytes, count: int) -> None:
        window: list[Any] = []
        earlier: list[Any] = []
        for _ in range(count):
            window.append(producer.send(name_of(name), value))
            if len(window) == WINDOW:
                for delivery in earlier:
                    delivery.result()
                earlier, window = window, []
        producer.flush()
        for delivery in earlier + window:
            delivery.result()

    with ottla.sync.Producer(bootstrap_servers=bootstrap) as producer:
        for name, (size, count) in counts.items():
            send_all(name, bytes(size), count // 10)
            with timed(row, f"produce {name}", count):
                send_all(name, bytes(size), count)
        with waits(row) as took_s:
            for _ in range(ONE_BY_ONE):
                began_s = time.perf_counter()
                producer.send_and_wait(name_of(LARGE), bytes(1000))
                took_s.append(time.perf_counter() - began_s)
    return row


def _consume_sync(bootstrap: str, counts: Counts) -> Row:
    row: Row = {}
    options: Any = {"bootstrap_servers": bootstrap, "auto_offset_reset": "earliest"}

    def read_all(count: int) -> None:
        while count > 0:
            for records in consumer.getmany(timeout_ms=1000, max_records=min(POLL, count)).values():
                for record in records:
                    len(record.value or b"")
                count -= len(records)

    for name, (_, count) in counts.items():
        with ottla.sync.Consumer(READ + name_of(name), **options) as consumer:
            read_all(1)
            with timed(row, f"consume {name}", count):
                read_all(count - 1)
        with ottla.sync.Consumer(READ + name_of(name), **options) as consumer:
            consumer.getone()
            with timed(row, f"consume {name} one by one", count):
                for record in islice(consumer, count - 1):
                    len(record.value or b"")
    return row


def _produce_confluent(bootstrap: str, counts: Counts) -> Row:
    import confluent_kafka

    row: Row = {}
    failed: list[Any] = []

    def arrived(error: Any, message: Any) -> None:
        if error is not None:
            failed.append(error)

    def send_all(name: str, value: bytes, count: int) -> None:
        topic = name_of(name)
        for number in range(count):
            while True:
                try:
                    producer.produce(topic, value, on_delivery=arrived)
                    break
                except BufferError:
                    producer.poll(0.01)
            if not number % 100:
                producer.poll(0)
        producer.flush()

    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for name, (size, count) in counts.items():
        send_all(name, bytes(size), count // 10)
        with timed(row, f"produce {name}", count):
            send_all(name, bytes(size), count)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})
    send_all(LARGE, bytes(1000), 1)
    with waits(row) as took_s:
        for _ in range(ONE_BY_ONE):
            began_s = time.perf_counter()
            producer.produce(name_of(LARGE), bytes(1000), on_delivery=arrived)
            while not producer.poll(1):
                pass
            took_s.append(time.perf_counter() - began_s)
    if failed:
        raise SystemExit(f"{len(failed)} records failed: {failed[0]}")
    return row


def _consume_confluent(bootstrap: str, counts: Counts) -> Row:
    import confluent_kafka

    row: Row = {}

    @contextmanager
    def reading(name: str) -> Iterator[Any]:
        consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
        consumer.assign([confluent_kafka.TopicPartition(READ + name_of(name), 0, 0)])
        while consumer.poll(1) is None:
            pass
        yield consumer
        consumer.close()

    for name, (_, count) in counts.items():
        with reading(name) as consumer, timed(row, f"consume {name}", count):
            left = count - 1
            while left > 0:
                messages = consumer.consume(min(POLL, left), 1)
                for message in messages:
                    len(message.value())
                left -= len(messages)
        with reading(name) as consumer, timed(row, f"consume {name} one by one", count):
            left = count - 1
            while left > 0:
                message = consumer.poll(1)
                if message is not None:
                    len(message.value())
                    left -= 1
    return row


def name_of(name: str) -> str:
    """Return the topic's name for a size."""
    return name.replace(" ", "-")


Load = Callable[[str, Counts], Row]
OTTLA, UVLOOP, SYNC = "ottla", "ottla uvloop", "ottla.sync"
CONFLUENT, AIOKAFKA = "confluent-kafka", "aiokafka"
PRODUCE: dict[str, Load] = {
    OTTLA: lambda *args: asyncio.run(_produce_async(_ottla_producer, *args)),
    UVLOOP: lambda *args: _run_on_uvloop(_produce_async(_ottla_producer, *args)),
    SYNC: _produce_sync,
    CONFLUENT: _produce_confluent,
    AIOKAFKA: lambda *args: asyncio.run(_produce_async(_aiokafka_producer, *args)),
}
CONSUME: dict[str, Load] = {
    OTTLA: lambda *args: asyncio.run(_consume_async(_ottla_consumer, *args)),
    UVLOOP: lambda *args: _run_on_uvloop(_consume_async(_ottla_consumer, *args)),
    SYNC: _consume_sync,
    CONFLUENT: _consume_confluent,
    AIOKAFKA: lambda *args: asyncio.run(_consume_async(_aiokafka_consumer, *args)),
}

if __name__ == "__main__":
    main()

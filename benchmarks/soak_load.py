"""The clients' load in a soak of real processes: steady writes and reads, transactions, and short-lived things.

Each part continues through every fault: errors are counted by their kind, and the work is retried.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections import Counter
from collections.abc import Awaitable, Callable

from ottla import Admin, Consumer, KafkaError, NewTopic, Producer

from .churn import Peer
from .rounds import percentile

STAYS, LATEST, MOVES = "stays", "latest", "moves"
TOPICS = [
    NewTopic(STAYS, 6, 3, configs={"retention.bytes": str(4 << 20), "segment.bytes": str(1 << 20)}),
    NewTopic(
        LATEST,
        2,
        3,
        configs={
            "cleanup.policy": "compact",
            "segment.bytes": str(1 << 20),
            "min.cleanable.dirty.ratio": "0.1",
        },
    ),
    NewTopic(MOVES, 3, 3, configs={"retention.bytes": str(1 << 20), "segment.bytes": str(1 << 20)}),
]
SETTINGS = {
    "log.retention.check.interval.ms": "10000",
    "log.cleaner.backoff.ms": "5000",
    "offsets.retention.minutes": "1",
    "offsets.retention.check.interval.ms": "10000",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.segment.bytes": str(1 << 20),
    "transactional.id.expiration.ms": "60000",
    "producer.id.expiration.ms": "60000",
    "producer.id.expiration.check.interval.ms": "10000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "10000",
}
"""Settings with short expiry times, so that things expire within the warm-up."""
KEYS = 200
CONNECTIONS = 20
_HEAD = struct.Struct(">qd")
_VALUE_BYTES = 1_000
_AGAIN_S = 0.2
_UNREAD_S = 120.0
_UNKNOWN_S = 200.0
"""Seconds after which it is known if a record was written."""


class Load:
    """All parts of the load, and their results. Times are in seconds, collected since the last `take_times`."""

    def __init__(self, bootstrap: str, per_second: float, pace: float) -> None:
        self._bootstrap, self._per_second, self._pace = bootstrap, per_second, pace
        self.errors: Counter[str] = Counter()
        self.done: Counter[str] = Counter()
        self.times: dict[str, list[float]] = {"acknowledged": [], "read": [], "committed": []}
        self._unread: dict[int, float] = {}
        self._read_early: set[int] = set()
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Create the topics, and start all parts."""
        async with Admin(bootstrap_servers=self._bootstrap) as admin:
            await admin.create_topics(TOPICS)
        parts = (self._read, self._write, self._replace, self._move, self._come_and_go)
        self._tasks = [asyncio.create_task(self._go_on(part), name=part.__name__) for part in parts]

    async def stop(self) -> list[int]:
        """Stop after the acknowledged records are read; return the numbers of unread records after two minutes."""
        self._stopping.set()
        reading, *others = self._tasks
        await asyncio.gather(*others)
        deadline = time.monotonic() + _UNREAD_S
        while self._unread and time.monotonic() < deadline:
            await asyncio.sleep(0.1)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        return sorted(self._unread)

    def take_times(self) -> dict[str, float]:
        """Return milliseconds by the kind of time: the median, and the 99th percentile."""
        told = {}
        for name, times in self.times.items():
            if times:
                told[f"{name} p50"] = percentile(times, 50) * 1000
                told[f"{name} p99"] = percentile(times, 99) * 1000
                times.clear()
        return told

    async def _go_on(self, part: Callable[[], Awaitable[None]]) -> None:
        while not self._stopping.is_set():
            try:
                await part()
            except Exception as error:
                self._failed(part.__name__, error)
                await asyncio.sleep(_AGAIN_S)

    def _failed(self, what: str, error: Exception) -> None:
        kind = error.code.name if isinstance(error, KafkaError) else type(error).__name__
        self.errors[f"{what.strip('_')}: {kind}"] += 1

    # Writing and reading

    async def _write(self) -> None:
        """Write numbered records at a fixed rate; each is expected to be read."""
        number = self.done["written"]
        sending: set[asyncio.Task[None]] = set()
        async with Producer(bootstrap_servers=self._bootstrap) as producer:
            began_s, first = time.monotonic(), number
            while not self._stopping.is_set():
                while (
                    number - first < (time.monotonic() - began_s) * self._per_second and len(sending) < 2_000
                ):
                    task = asyncio.create_task(self._send(producer, number))
                    sending.add(task)
                    task.add_done_callback(sending.discard)
                    number += 1
                self.done["written"] = number
                await asyncio.sleep(0.005)
            await asyncio.gather(*sending)

    async def _send(self, producer: Producer, number: int) -> None:
        began_s = time.monotonic()
        value = _HEAD.pack(number, began_s).ljust(_VALUE_BYTES, b"\0")
        try:
            await producer.send_and_wait(STAYS, value)
        except Exception as error:
            self._failed("send", error)
            return
        self.times["acknowledged"].append(time.monotonic() - began_s)
        self.done["acknowledged"] += 1
        if number in self._read_early:
            self._read_early.discard(number)
        else:
            self._unread[number] = began_s

    async def _read(self) -> None:
        """Read as the staying member of a group."""
        async with Consumer(
            STAYS, bootstrap_servers=self._bootstrap, group_id="soak", auto_offset_reset="earliest"
        ) as consumer:
            while True:
                for records in (await consumer.getmany(timeout_ms=500)).values():
                    now_s = time.monotonic()
                    for record in records:
                        number, sent_s = _HEAD.unpack_from(record.value)
                        self.times["read"].append(now_s - sent_s)
                        self.done["read"] += 1
                        if self._unread.pop(number, None) is None:
                            self._read_early.add(number)
                # Forget old numbers: records read twice, or never acknowledged, would stay forever.
                known_from = self.done["written"] - _UNKNOWN_S * self._per_second
                self._read_early = {number for number in self._read_early if number > known_from}

    async def _replace(self) -> None:
        """Write new values of a few keys, in a compacted topic."""
        async with Producer(bootstrap_servers=self._bootstrap) as producer:
            while not self._stopping.is_set():
                for number in range(10):
                    key = b"%d" % ((self.done["replaced"] + number) % KEYS)
                    await producer.send(LATEST, bytes(200), key=key)
                await producer.flush()
                self.done["replaced"] += 10
                await asyncio.sleep(10 / self._per_second)

    async def _move(self) -> None:
        """Write transactions of a record to each of two partitions, ten in a second."""
        async with Producer(bootstrap_servers=self._bootstrap, transactional_id="mover") as producer:
            while not self._stopping.is_set():
                began_s = time.monotonic()
                async with producer.transaction():
                    for partition in (0, 1):
                        await producer.send(MOVES, bytes(100), partition=partition)
                self.times["committed"].append(time.monotonic() - began_s)
                self.done["transactions"] += 1
                await asyncio.sleep(0.1)

    # Coming and going

    async def _come_and_go(self) -> None:
        """Run rounds of short-lived topics, groups, transactional ids and connections."""
        async with Admin(bootstrap_servers=self._bootstrap) as admin:
            while not self._stopping.is_set():
                began_s, number = time.monotonic(), self.done["rounds"]
                await self._round(admin, number)
                self.done["rounds"] += 1
                await asyncio.sleep(max(0.0, began_s + 1 / self._pace - time.monotonic()))

    async def _round(self, admin: Admin, number: int) -> None:
        old = [name for name in await admin.list_topics() if name.startswith("round-")]
        await admin.create_topics(
            [NewTopic(f"round-{number}-{time.monotonic_ns()}-{k}", 2, 3) for k in range(2)]
        )
        if old:
            await admin.delete_topics(old)
        group = f"round-{number}"
        async with Consumer(
            LATEST, bootstrap_servers=self._bootstrap, group_id=group, auto_offset_reset="earliest"
        ) as consumer:
            await consumer.getmany(timeout_ms=1_000, max_records=10)
            await consumer.commit()
        if number % 2:
            await admin.delete_groups([group])  # the group of the other rounds expires
        async with (
            Producer(bootstrap_servers=self._bootstrap, transactional_id=f"round-{number}") as producer,
            producer.transaction(),
        ):
            await producer.send(MOVES, b"once", partition=2)
        address = self._bootstrap.split(",")[number % len(self._bootstrap.split(","))]
        for k in range(CONNECTIONS):
            (await Peer.connect(address, f"visitor-{number}-{k}")).close()

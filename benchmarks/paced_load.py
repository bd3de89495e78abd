"""A paced producer and a consumer that measures delays, each in a separate process, for `benchmarks.open_messaging`.

The producer sends the records of each millisecond together. A record has the time at which it was due, not the time at
which the producer came to it: if the producer is late, that counts. The consumer compares this time with its own clock
when it has the record. Both clients are librdkafka's.
"""

from __future__ import annotations

import gc
import math
import multiprocessing
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any, Final, NamedTuple, Protocol

import numpy
from confluent_kafka import Consumer, Message, Producer

from .compare import json_like

TICK_S: Final = 0.001
CHUNK: Final = 200
QUEUED_RECORDS: Final = 30_000
"""Records that wait in the producer at most, when it is not paced."""
WAITING_MAX: Final = 1_000_000
"""Records that wait in the producer at most, when it is paced. It has more only if brokers are far behind."""
DRAINED_AT_ONCE: Final = 10_000
KEPT_ARRAYS: Final = 500
"""Arrays of delays that are added to the histogram together."""
ANSWER_S: Final = 120.0
BIN: Final = math.log(1.01)
"""Width of a bin of delays: one percent."""
BINS: Final = 2_400
_STAMP = struct.Struct("<q")


class Delays(NamedTuple):
    """A histogram of delays, and the worst of them."""

    counts: Any
    worst_s: float

    @classmethod
    def none(cls) -> Delays:
        """Return an empty histogram."""
        return cls(numpy.zeros(BINS, numpy.int64), 0.0)

    def with_more(self, delays_ns: Any) -> Delays:
        """Return the histogram with these delays, an array of nanoseconds."""
        us = numpy.maximum(delays_ns, 1_000) / 1_000
        bins = numpy.minimum((numpy.log(us) / BIN).astype(numpy.int64), BINS - 1)
        counts = self.counts + numpy.bincount(bins, minlength=BINS)
        return Delays(counts, max(self.worst_s, float(us.max()) / 1e6))

    def percentile_ms(self, percent: float) -> float:
        """Return the delay in ms that this share of the records did not exceed, to one percent."""
        total = int(self.counts.sum())
        if not total:
            raise ValueError("no record has arrived")
        place = int(numpy.searchsorted(numpy.cumsum(self.counts), math.ceil(total * percent / 100)))
        return min(math.exp((place + 1) * BIN) / 1_000, self.worst_s * 1_000)


class Worker(Protocol):
    """A part of the load in a child process. Other methods are called by their names, through `Remote.ask`."""

    def turn(self) -> None:
        """Work for some milliseconds."""

    def stop(self) -> None:
        """End the work."""


class Writer:
    """A producer that sends to several topics in turn, at a rate."""

    def __init__(self, bootstrap: str, topics: Sequence[str], size: int, keys: int = 0) -> None:
        """Create a producer that is paused. With `keys` each tick of the clock has one of so many keys."""
        self._topics, self._keys = topics, keys
        self._filling = json_like(size)[_STAMP.size :]
        self._size = size
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "linger.ms": 1,
                "batch.size": 131_072,
                "queue.buffering.max.messages": 2 * WAITING_MAX,
                "queue.buffering.max.kbytes": 2_000_000,
                "delivery.report.only.error": True,
                "on_delivery": self._failed,
                "log_level": 0,
            }
        )
        self._rate: float | None = 0.0
        self._sent = self._ticks = 0
        self._began_ns = time.monotonic_ns()
        self._failures: list[str] = []

    def pace(self, rate: float | None) -> None:
        """Send this number of records a second; None for as many as possible."""
        self._rate, self._ticks, self._began_ns = rate, 0, time.monotonic_ns()

    def sent(self) -> int:
        """Return the number of records so far, with those that are not yet acknowledged."""
        if self._failures:
            raise RuntimeError(f"{len(self._failures)} records were not written: {self._failures[:3]}")
        return self._sent

    def acknowledged(self) -> int:
        """Return the number of records that brokers have acknowledged."""
        return self.sent() - len(self._producer)

    def turn(self) -> None:
        """Send the records that are due, or a chunk of an unlimited load."""
        self._producer.poll(0)
        if self._rate is None:
            if len(self._producer) < QUEUED_RECORDS:
                self._send(CHUNK, time.monotonic_ns())
            else:
                self._producer.poll(0.001)
            return
        due = (time.monotonic_ns() - self._began_ns) / 1e9 / TICK_S
        while self._ticks < due and len(self._producer) < WAITING_MAX:
            count = int((self._ticks + 1) * TICK_S * self._rate) - int(self._ticks * TICK_S * self._rate)
            self._send(count, self._began_ns + int(self._ticks * TICK_S * 1e9))
            self._ticks += 1
        time.sleep(max(0.0, (self._ticks - due) * TICK_S))

    def _send(self, count: int, stamp_ns: int) -> None:
        if not count:
            return
        record: dict[str, object] = {"value": _STAMP.pack(stamp_ns) + self._filling}
        if self._keys:
            record["key"] = b"%d" % (self._sent % self._keys)
        topic = self._topics[self._ticks % len(self._topics)]
        if self._rate is None:
            topic = self._topics[self._sent // CHUNK % len(self._topics)]
        sent = self._producer.produce_batch(topic, [record] * count)
        if sent != count:
            raise RuntimeError(f"the producer's queue took {sent} of {count} records")
        self._sent += count

    def _failed(self, error: object, _message: Message) -> None:
        self._failures.append(str(error))

    def stop(self) -> None:
        """Drop the records that wait."""
        self._producer.purge()


class Reader:
    """A consumer of all topics in a group, which measures the delay of each record."""

    def __init__(self, bootstrap: str, topics: Sequence[str], group_id: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group_id,
                "auto.offset.reset": "earliest",
                "fetch.queue.backoff.ms": 5,
                "log_level": 0,
            }
        )
        self._consumer.subscribe(list(topics))
        self._count = 0
        self._delays = Delays.none()
        self._arrived: list[Any] = []

    def turn(self) -> None:
        """Wait for a record for a moment; take over all records that have arrived."""
        message = self._consumer.poll(0.02)
        if message is None:
            return
        batch = [message, *self._consumer.consume(DRAINED_AT_ONCE, 0)]
        now_ns = time.monotonic_ns()
        values = [value for each in batch if each.error() is None and (value := each.value()) is not None]
        if values:
            stamps = numpy.frombuffer(b"".join([value[: _STAMP.size] for value in values]), "<i8")
            self._arrived.append(now_ns - stamps)
            self._count += len(values)
            if len(self._arrived) >= KEPT_ARRAYS:
                self._take_over()

    def partitions(self) -> int:
        """Return the number of partitions that the consumer has."""
        return len(self._consumer.assignment())

    def count(self) -> int:
        """Return the number of records so far."""
        return self._count

    def clear(self) -> None:
        """Begin to measure."""
        self._delays = Delays.none()
        self._arrived.clear()

    def delays(self) -> Delays:
        """Return the delays since `clear`."""
        self._take_over()
        return self._delays

    def _take_over(self) -> None:
        if self._arrived:
            self._delays = self._delays.with_more(numpy.concatenate(self._arrived))
            self._arrived.clear()

    def pause(self) -> None:
        """Stop to fetch. The group stays as it is."""
        self._consumer.pause(self._consumer.assignment())

    def resume(self) -> None:
        """Continue to fetch."""
        self._consumer.resume(self._consumer.assignment())

    def stop(self) -> None:
        """Leave the group."""
        self._consumer.close()


class Remote:
    """A worker in a child process."""

    def __init__(self, kind: type[Worker], *arguments: object) -> None:
        """Start the process, and wait until the worker is made."""
        spawn = multiprocessing.get_context("spawn")
        self._connection, theirs = spawn.Pipe()
        self._process: SpawnProcess = spawn.Process(
            target=_serve, args=(theirs, kind, arguments), daemon=True
        )
        self._process.start()
        theirs.close()
        self._answer()

    def ask(self, method: str, *arguments: object) -> Any:
        """Call a method of the worker; return its result."""
        self._connection.send((method, arguments))
        return self._answer()

    def close(self) -> None:
        """Stop the worker and its process."""
        if self._process.is_alive():
            self.ask("stop")
        self._process.join(ANSWER_S)
        self._connection.close()

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()
        self._process.join()

    def _answer(self) -> Any:
        if not self._connection.poll(ANSWER_S):
            raise TimeoutError(f"a process of the load did not answer within {ANSWER_S:g} s")
        try:
            return self._connection.recv()
        except EOFError:
            raise RuntimeError("a process of the load has ended; its error is above") from None


@contextmanager
def remote(kind: type[Worker], *arguments: object) -> Iterator[Remote]:
    """Run a worker in a child process, which ends with the block."""
    worker = Remote(kind, *arguments)
    try:
        yield worker
    except BaseException:
        worker.kill()
        raise
    worker.close()


def _serve(connection: Connection, kind: type[Worker], arguments: Sequence[object]) -> None:
    """Alternate turns of the worker with calls of its methods, until it is stopped."""
    worker = kind(*arguments)
    gc.freeze()
    gc.disable()  # the workers make no cycles, and a collection would delay records
    connection.send(None)
    while True:
        if connection.poll(0):
            method, asked = connection.recv()
            connection.send(getattr(worker, method)(*asked))
            if method == "stop":
                return
        worker.turn()

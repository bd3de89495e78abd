"""The cost of one record with acks=all: from the producer's frame to the answer, over a leader and two followers.

    python -m benchmarks.replicated_record [--records N] [--rounds N] [--partitions N | --consumer] [--record FILE]
        [--profile]

Servers, handlers, logs and fetch sessions of three brokers run on one event loop, over loopback. A minimal producer has
one record of 1 KB in flight. So no other process has to be waited for, and the time is the processor's: the least of
the rounds counts. The calls of Python functions for one record are independent of other load on the machine. Both
include the producer, and the kernel's work for all of them. With `--partitions` these are written in turn, and one
broker leads all of them. With `--consumer` a consumer waits for each record, and the next record is sent after the
consumer has it, too.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import itertools
import os
import pstats
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import uvloop
from rich.console import Console
from rich.table import Table

from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.headers import encode_request
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.records.record import encode_batch
from tests.dataplane.replication.brokers_over_sockets import BrokersOverSockets, running, until

from .rounds import record

VERSION, FETCH_VERSION = 9, 11
RECORD_BYTES = 1000
LAG_MS = 30_000
LEADER = 1
_SIZE = struct.Struct(">i")


def connected(port: int) -> socket.socket:
    """Return a client's socket."""
    sock = socket.create_connection(("127.0.0.1", port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setblocking(False)
    return sock


class WaitingConsumer:
    """A consumer that fetches from the end of the log, again after each record."""

    def __init__(self, port: int) -> None:
        self._socket = connected(port)
        self._offset = 0
        self.has_record = False
        """True if the record that was sent last has arrived."""
        self.on_record: Callable[[], None] = lambda: None

    def start(self, offset: int) -> None:
        """Ask for the record at `offset`."""
        self._offset = offset
        self._fetch()
        asyncio.get_running_loop().add_reader(self._socket, self._readable)

    def _fetch(self) -> None:
        part = FetchPartition(partition=0, fetch_offset=self._offset, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=30_000,
            min_bytes=1,
            max_bytes=1 << 20,
            session_epoch=-1,
            topics=[FetchTopic(topic="t", partitions=[part])],
        )
        self._socket.send(encode_request(request, FETCH_VERSION, 1, "benchmark"))

    def _readable(self) -> None:
        check_whole(self._socket.recv(4096))
        self._offset += 1
        self.has_record = True
        self._fetch()
        self.on_record()

    def close(self) -> None:
        """Disconnect."""
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()


def check_whole(answer: bytes) -> None:
    """Raise RuntimeError unless these are the bytes of one whole answer."""
    if len(answer) < 4 or len(answer) != 4 + _SIZE.unpack_from(answer)[0]:
        raise RuntimeError("an answer came in pieces, or the broker is gone")


def produce_frame(index: int) -> bytes:
    """Make a whole request with one record for this partition."""
    batch = encode_batch([(None, os.urandom(RECORD_BYTES), 0)])
    data = PartitionProduceData(index=index, records=batch)
    topic = TopicProduceData(name="t", partition_data=[data])
    return encode_request(
        ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic]), VERSION, 1, "benchmark"
    )


class OneInFlight:
    """A producer that writes to the partitions in turn.

    It sends a record when the previous one is answered, and the consumer has it.
    """

    def __init__(self, port: int, partitions: int, consumer: WaitingConsumer | None = None) -> None:
        self._frames = itertools.cycle(produce_frame(index) for index in range(partitions))
        self._socket = connected(port)
        self._loop = asyncio.get_running_loop()
        self._consumer = consumer
        if consumer is not None:
            consumer.on_record = self._go_on
        self._left = 0
        self._is_answered = False
        self._done: asyncio.Future[None] = self._loop.create_future()

    async def press(self, count: int) -> None:
        """Send `count` records, and wait for the answer to the last."""
        self._left, self._done = count, self._loop.create_future()
        self._loop.add_reader(self._socket, self._readable)
        self._send()
        await self._done

    def _send(self) -> None:
        self._is_answered = False
        if self._consumer is not None:
            self._consumer.has_record = False
        self._socket.send(next(self._frames))

    def _readable(self) -> None:
        check_whole(self._socket.recv(4096))
        self._is_answered = True
        self._go_on()

    def _go_on(self) -> None:
        if not self._is_answered or (self._consumer is not None and not self._consumer.has_record):
            return
        self._left -= 1
        if self._left:
            self._send()
        else:
            self._loop.remove_reader(self._socket)
            self._done.set_result(None)

    def close(self) -> None:
        """Disconnect."""
        self._socket.close()


async def in_sync(cluster: BrokersOverSockets) -> None:
    """Wait until both followers fetch."""
    leader = cluster[LEADER].partition.leader
    assert leader is not None
    await until(
        lambda: all(follower.log_end_offset >= 0 for follower in leader.followers.values()), "the followers"
    )


async def measure(
    folder: Path, records: int, rounds: int, partitions: int, *, consumed: bool, profile: bool
) -> tuple[float, float]:
    """Return CPU microseconds for a record, and calls of Python functions."""
    async with running(folder, lag_ms=LAG_MS, partitions=partitions) as cluster:
        await in_sync(cluster)
        consumer = WaitingConsumer(cluster[LEADER].port) if consumed else None
        producer = OneInFlight(cluster[LEADER].port, partitions, consumer)
        if consumer is not None:
            consumer.start(0)
        await producer.press(records // 4)
        spent_us = []
        for _ in range(rounds):
            before = time.process_time()
            await producer.press(records)
            spent_us.append((time.process_time() - before) / records * 1e6)
        profiler = cProfile.Profile()
        profiler.enable()
        await producer.press(records)
        profiler.disable()
        producer.close()
        if consumer is not None:
            consumer.close()
        ends = [cluster[LEADER].replicas.get("t", index).high_watermark for index in range(partitions)]
        if sum(ends) != (rounds + 1) * records + records // 4:
            raise RuntimeError(f"the high watermarks are {ends}")
    told = pstats.Stats(profiler)
    if profile:
        told.sort_stats("tottime").print_stats(70)
    return min(spent_us), _calls(told) / records


def _calls(told: pstats.Stats) -> float:
    """Return the calls of Python functions: functions in C have no file in the statistics."""
    stats: dict[tuple[str, int, str], tuple[int, int, float, float, object]] = told.stats  # type: ignore[attr-defined]
    return sum(row[1] for (file, _, _), row in stats.items() if file != "~")


def main() -> int:
    """Measure and print one table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=2000, help="in each round")
    parser.add_argument("--rounds", type=int, default=15)
    among = parser.add_mutually_exclusive_group()
    among.add_argument("--partitions", type=int, default=1, help="that are written in turn")
    among.add_argument("--consumer", action="store_true", help="somebody waits for each record")
    parser.add_argument("--record", type=Path, help="append the readings to this file")
    parser.add_argument("--profile", action="store_true", help="print where the time goes")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        measured = measure(
            Path(name),
            args.records,
            args.rounds,
            args.partitions,
            consumed=args.consumer,
            profile=args.profile,
        )
        spent_us, calls = uvloop.run(measured)
    what = "one record, acks=all, three replicas" + (", a consumer" if args.consumer else "")
    if args.partitions > 1:
        what += f", {args.partitions} partitions in turn"
    table = Table(what, "")
    table.add_row("CPU of all, µs", f"{spent_us:.0f}")
    table.add_row("calls of Python functions", f"{calls:.0f}")
    Console().print(table)
    if args.record is not None:
        record(args.record, what=what, cpu_us=round(spent_us, 1), calls=round(calls))
    return 0


if __name__ == "__main__":
    sys.exit(main())

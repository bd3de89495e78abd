"""The event loop's cost of one produce request, from the bytes in the socket to the bytes of the answer.

    python -m benchmarks.produce_path [--requests N] [--rounds N] [--only TEXT] [--profile | --record FILE]

This is a broker's connection, router, handler, replicas and logs without network and event loop. The socket returns the
same frame again and again, each time with the next sequence, and drops the answers. With acks=all a follower
acknowledges each request. The CPU time is that of the thread, the least of the rounds. The number of calls of Python
functions for one request is independent of other load on the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import gc
import pstats
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, cast

import uvloop
from rich.console import Console
from rich.table import Table

from ottla.dataplane.handlers.produce import ProduceHandlers
from ottla.dataplane.log import LogConfig, PartitionLog
from ottla.dataplane.quotas import ClientQuotas
from ottla.dataplane.replication.replica.partition import Partition
from ottla.dataplane.replication.replica.settings import ReplicationSettings
from ottla.dataplane.replication.replicas.replicas import Replicas
from ottla.dataplane.replication.roles.leader import KnownBroker
from ottla.dataplane.runtime.change_set import ChangeSet
from ottla.dataplane.runtime.clocks import monotonic_ms, wall_ms
from ottla.dataplane.security.peer_session import PeerSession
from ottla.dataplane.security.principal import ANONYMOUS
from ottla.dataplane.server.buffers import BufferPool
from ottla.dataplane.server.connection import ClientConnection, ConnectionLimits
from ottla.dataplane.server.handler import HandlerTable
from ottla.dataplane.server.purgatory import Purgatory
from ottla.dataplane.server.receive_budget import ReceiveBudget
from ottla.dataplane.server.request_times import RequestTimes
from ottla.dataplane.server.router import Router
from ottla.dataplane.server.sending import SendQueue
from ottla.dataplane.server.socket_adapters import SocketAdapter
from ottla.dataplane.server.unread_answers import UnreadAnswers
from ottla.dataplane.transactions.pending_writes import PendingTransactionWrites
from ottla.protocol.checksum import crc32c
from ottla.protocol.cluster.cluster_image import ClusterImage, PartitionState
from ottla.protocol.messages.headers import decode_response, encode_request
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.records.record import encode_batch

from .rounds import record

OWN_ID, FOLLOWER_ID = 1, 2
TOPIC, TOPIC_ID = "produced", bytes(range(16))
_CRC_AT, _ATTRIBUTES_AT, _SEQUENCE_AT = 17, 21, 53
_INT32, _UINT32 = struct.Struct(">i"), struct.Struct(">I")


class Case(NamedTuple):
    """A kind of produce request."""

    version: int
    acks: int
    partitions: int
    batch_bytes: int
    """Size of the batch for each partition, in records of 1 KB."""

    def __str__(self) -> str:
        told = {-1: "all"}.get(self.acks, str(self.acks))
        return f"v{self.version} acks={told} {self.partitions} x {self.batch_bytes // 1024 or 1} KB"


CASES = (
    Case(8, 1, 1, 1010),
    Case(8, 1, 1, 16 << 10),
    Case(8, 1, 1, 64 << 10),
    Case(12, -1, 1, 1010),
    Case(13, -1, 1, 1010),
    Case(13, -1, 6, 1010),
)


class _OneFrame:
    """A socket that has one frame to read, and then none until the next turn."""

    def __init__(self) -> None:
        self.frame = bytearray()
        self.sent: bytes = b""
        self._position = 0

    def fileno(self) -> int:
        return 0

    def recv_into(self, buffer: memoryview, /) -> int:
        left = len(self.frame) - self._position
        if not left:
            self._position = 0
            raise BlockingIOError
        size = min(left, len(buffer))
        buffer[:size] = self.frame[self._position : self._position + size]
        self._position += size
        if size < len(buffer):
            self._position = 0
        return size

    def send(self, data: bytes, /) -> int:
        self.sent = data
        return len(data)

    def sendmsg(self, buffers: Sequence[bytes], ancillary: object = (), flags: int = 0, /) -> int:
        self.sent = b"".join(buffers)
        return len(self.sent)

    def close(self) -> None:
        pass


class _Readiness:
    """A stand-in for the event loop that keeps the reader's callback."""

    def __init__(self) -> None:
        self.readable: Callable[[], object] = lambda: None

    def add_reader(self, _fd: int, callback: Callable[[], object], /) -> None:
        self.readable = callback

    def remove_reader(self, _fd: int, /) -> None:
        pass

    def add_writer(self, _fd: int, callback: Callable[[], object], /) -> None:
        pass

    def remove_writer(self, _fd: int, /) -> None:
        pass


class _Host:
    """The broker around the replicas; nothing is flushed."""

    broker_id = OWN_ID
    brokers: Mapping[int, KnownBroker] = {}

    def __init__(self) -> None:
        self.moved: ChangeSet[Partition] = ChangeSet()

    def monotonic_ms(self) -> int:
        return monotonic_ms()

    def wall_ms(self) -> int:
        return wall_ms()

    def flush(self, _partition: Partition, /) -> None:
        pass

    def flush_later(self, _partition: Partition, _delay_ms: int, /) -> None:
        pass


class _Replicas:
    """The replicas of one topic."""

    def __init__(self, partitions: Sequence[Partition]) -> None:
        self.image = ClusterImage()
        self._by_name = {(partition.topic, partition.index): partition for partition in partitions}
        self._by_key = {(partition.topic_id, partition.index): partition for partition in partitions}

    def find(self, topic: str, index: int) -> Partition | None:
        return self._by_name.get((topic, index))

    def find_by_id(self, topic_id: bytes, index: int) -> Partition | None:
        return self._by_key.get((topic_id, index))


class Rig:
    """A broker and a connection to it. `produce` sends a request and only checks that an answer comes."""

    def __init__(self, folder: Path, case: Case, loop: asyncio.AbstractEventLoop) -> None:
        self.case = case
        self.partitions = [
            self._partition(folder / f"{TOPIC}-{index}", index) for index in range(case.partitions)
        ]
        replicas = cast(Replicas, _Replicas(self.partitions))
        self.handlers = ProduceHandlers(replicas, Purgatory(loop), cast(PendingTransactionWrites, None))
        router = Router(HandlerTable(self.handlers), loop, ClientQuotas())
        self.socket = _OneFrame()
        self._readiness = _Readiness()
        self.connection = ClientConnection(
            SocketAdapter(self.socket, self._readiness, SendQueue(cast(socket.socket, self.socket))),
            PeerSession(ANONYMOUS, "127.0.0.1", "PLAINTEXT"),
            1,
            loop=loop,
            pool=BufferPool(),
            budget=ReceiveBudget(64 << 20),
            unread=UnreadAnswers(),
            limits=ConnectionLimits(),
            times=RequestTimes(),
            on_frame=router.dispatch,
            on_closed=lambda _: None,
            number=1,
            birth=-1,
        )
        self.socket.frame, self._batches = self._request()
        self._records = max(1, case.batch_bytes // 1010)
        self._sequence = 0

    def _partition(self, folder: Path, index: int) -> Partition:
        log = PartitionLog.open(folder, LogConfig(), clean_shutdown=False, recovery_point=0, now_ms=wall_ms())
        partition = Partition(TOPIC, TOPIC_ID, index, log, _Host(), ReplicationSettings(), 0)
        members = (OWN_ID, FOLLOWER_ID) if self.case.acks == -1 else (OWN_ID,)
        partition.become_leader(PartitionState(members, members, leader=OWN_ID))
        return partition

    def _request(self) -> tuple[bytearray, list[int]]:
        """Return the frame, and the positions of the batches in it."""
        case = self.case
        records = [
            (None, bytes([index]) * 1000, wall_ms()) for index in range(max(1, case.batch_bytes // 1010))
        ]
        batches = [
            encode_batch(records, producer_id=index, producer_epoch=0, base_sequence=0)
            for index in range(case.partitions)
        ]
        topic = TopicProduceData(
            name=TOPIC,
            topic_id=TOPIC_ID,
            partition_data=[
                PartitionProduceData(index=index, records=batch) for index, batch in enumerate(batches)
            ],
        )
        request = ProduceRequest(acks=case.acks, timeout_ms=30_000, topic_data=[topic])
        frame = encode_request(request, case.version, 7, "benchmark")
        return bytearray(frame), [frame.index(batch) for batch in batches]

    def next_request(self) -> None:
        """Give the batches of the frame their next sequences."""
        frame = self.socket.frame
        size = self._batch_bytes()
        for at in self._batches:
            _INT32.pack_into(frame, at + _SEQUENCE_AT, self._sequence)
            crc = crc32c(memoryview(frame)[at + _ATTRIBUTES_AT : at + size])
            _UINT32.pack_into(frame, at + _CRC_AT, crc)
        self._sequence += self._records

    def _batch_bytes(self) -> int:
        return int(_INT32.unpack_from(self.socket.frame, self._batches[0] + 8)[0]) + 12

    def produce(self) -> None:
        """Run one request and its answer."""
        self._readiness.readable()
        if self.case.acks == -1:
            for partition in self.partitions:
                partition.fetched_by(FOLLOWER_ID, 1, partition.log.log_end_offset)

    def check(self) -> None:
        """Raise AssertionError unless the last request was answered without an error, and all batches were appended."""
        answer = decode_response(ProduceRequest, bytes(self.socket.sent)[4:], self.case.version)[1]
        told = [partition for topic in answer.responses for partition in topic.partition_responses]
        assert len(told) == self.case.partitions, answer
        assert all(partition.error_code == 0 for partition in told), answer
        for partition in self.partitions:
            assert partition.high_watermark == partition.log.log_end_offset == self._sequence
            partition.check()

    def close(self) -> None:
        self.handlers.close()
        for partition in self.partitions:
            partition.log.close(clean=False)


class Reading(NamedTuple):
    """The cost of one request."""

    cpu_us: float
    calls: float


def cpu_us(rig: Rig, requests: int) -> float:
    """Return user and system time of this thread for one request; making the frame is not counted."""
    spent, clock, produce = 0, time.thread_time_ns, rig.produce
    for _ in range(requests):
        rig.next_request()
        begun = clock()
        produce()
        spent += clock() - begun
    return spent / requests / 1000


def calls(rig: Rig, requests: int) -> float:
    """Return the number of Python functions that one request calls."""
    counted = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal counted
        counted += event == "call"

    for _ in range(requests):
        rig.next_request()
        sys.setprofile(count)
        rig.produce()
        sys.setprofile(None)
    return counted / requests


def measure(case: Case, requests: int, rounds: int, loop: asyncio.AbstractEventLoop) -> Reading:
    """Return the least CPU of the rounds, since other load on the machine only adds to it."""
    least = float("inf")
    with tempfile.TemporaryDirectory() as folder:
        rig = Rig(Path(folder), case, loop)
        try:
            cpu_us(rig, requests // 10)
            for _ in range(rounds):
                gc.collect()
                least = min(least, cpu_us(rig, requests))
                rig.check()
            return Reading(least, calls(rig, 100))
        finally:
            rig.close()


def profile(case: Case, requests: int, loop: asyncio.AbstractEventLoop) -> None:
    """Print a profile."""
    with tempfile.TemporaryDirectory() as folder:
        rig = Rig(Path(folder), case, loop)
        profiler = cProfile.Profile()
        for _ in range(requests):
            rig.next_request()
            profiler.enable()
            rig.produce()
            profiler.disable()
        rig.check()
        rig.close()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(45)


def main() -> int:
    """Measure and print one table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default="", help="only the cases whose name contains this")
    parser.add_argument("--profile", action="store_true", help="profile the cases instead")
    parser.add_argument("--record", type=Path, help="append the readings to this file")
    options = parser.parse_args()
    loop = uvloop.new_event_loop()
    cases = [case for case in CASES if options.only in str(case)]
    if options.profile:
        for case in cases:
            print(case)
            profile(case, options.requests, loop)
        return 0
    readings = {}
    table = Table(title="one produce request on the event loop")
    for name in ("request", "CPU, us", "Python calls"):
        table.add_column(name, justify="left" if name == "request" else "right")
    for case in cases:
        reading = readings[str(case)] = measure(case, options.requests, options.rounds, loop)
        table.add_row(str(case), f"{reading.cpu_us:.1f}", f"{reading.calls:.0f}")
    Console().print(table)
    if options.record is not None:
        record(options.record, produce_path={name: reading._asdict() for name, reading in readings.items()})
    loop.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Compares the time of one record, acks=all, with a chain of processes that only pass the record on.

    python -m benchmarks.record_chain [--records N] [--rounds N] [--record FILE]

Both have the same client: a loop of this process with one request of a 1 KB record in flight. In the chain a leader
passes the record to two followers, whose requests wait for it, and answers the client once both have asked for the next
record. Its processes write no files, check nothing, and keep one number each. In Ottla three brokers do the same with
Produce and Fetch. Rounds alternate between both, and medians are shown.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import socket
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Final, Self, cast

import uvloop
from rich.console import Console
from rich.table import Table

from ottla.client.connections.metadata import BrokerAddress
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.headers import FRAME_SIZE, decode_response, encode_request
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.records.record import encode_batch

from .clusters import Cluster, ottla_cluster
from .compare import admin_of, json_like, new_topic
from .rounds import percentile, record

PRODUCE_VERSION: Final = 9
FOLLOWERS: Final = 2
WARM_UP: Final = 2_000
GOAL: Final = 1.15
DEADLINE_S: Final = 30.0
ANSWER: Final = b"\x01" * 40
"""The chain's answer to the client. It is as long as a broker's answer to Produce, but for a few bytes."""
FETCH: Final = b"F" + b" " * 79
"""A follower's request to the leader of the chain."""


class Frames(asyncio.Protocol):
    """A connection that hands on whole frames, each behind its size."""

    def __init__(self) -> None:
        self._received = bytearray()
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # a Transport by its methods, not by its class
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        while len(received) >= FRAME_SIZE.size:
            end = FRAME_SIZE.size + FRAME_SIZE.unpack_from(received)[0]
            if len(received) < end:
                return
            frame = bytes(received[FRAME_SIZE.size : end])
            del received[:end]
            self.frame(frame)

    def frame(self, content: bytes) -> None:
        """Handle one frame."""
        raise NotImplementedError

    def send(self, content: bytes) -> None:
        """Send one frame."""
        assert self.transport is not None
        self.transport.write(FRAME_SIZE.pack(len(content)) + content)


class Asker(Frames):
    """The client: one request in flight."""

    def __init__(self) -> None:
        super().__init__()
        self._answer: asyncio.Future[bytes] | None = None

    @classmethod
    async def connected(cls, port: int) -> Self:
        """Connect to a port of this machine."""
        _, asker = await asyncio.get_running_loop().create_connection(cls, "127.0.0.1", port)
        return asker

    def frame(self, content: bytes) -> None:
        assert self._answer is not None
        self._answer.set_result(content)

    async def ask(self, request: bytes) -> bytes:
        """Send a whole frame; return the content of the answer."""
        assert self.transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return await self._answer

    def close(self) -> None:
        """Close the connection."""
        assert self.transport is not None
        self.transport.close()


# ---------------------------------------------------------------- the chain


class Leader(Frames):
    """A connection of the chain's leader, with the client or with a follower. All connections share the leader."""

    waiting: list[Leader]
    """Followers whose request waits for a record."""
    client: Leader | None

    @classmethod
    def alone(cls) -> type[Leader]:
        """Return a leader without connections."""
        return type("AloneLeader", (cls,), {"waiting": [], "client": None})

    def frame(self, content: bytes) -> None:
        kind = type(self)
        if content != FETCH:
            kind.client, followers = self, kind.waiting
            kind.waiting = []
            for follower in followers:
                follower.send(content)
            return
        kind.waiting.append(self)
        if kind.client is not None and len(kind.waiting) == FOLLOWERS:
            kind.client.send(ANSWER)
            kind.client = None


class Follower(Frames):
    """A follower of the chain, which asks for the next record when it has one."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.send(FETCH)

    def frame(self, content: bytes) -> None:
        self.send(FETCH)


def lead(listening: socket.socket) -> None:
    """Run the leader of the chain until the process is killed."""

    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(Leader.alone(), sock=listening)
        await server.serve_forever()

    uvloop.run(serve())


def follow(port: int) -> None:
    """Run a follower of the chain until the process is killed."""

    async def serve() -> None:
        await asyncio.get_running_loop().create_connection(Follower, "127.0.0.1", port)
        await asyncio.Event().wait()

    uvloop.run(serve())


@contextmanager
def chain() -> Iterator[int]:
    """Run the processes of the chain; yield the leader's port."""
    spawn = multiprocessing.get_context("spawn")
    processes: list[BaseProcess] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        processes.append(spawn.Process(target=lead, args=(listening,), daemon=True))
        processes += [spawn.Process(target=follow, args=(port,), daemon=True) for _ in range(FOLLOWERS)]
        for process in processes:
            process.start()
        try:
            yield port
        finally:
            for process in processes:
                process.kill()
                process.join()


async def through_chain(records: int) -> list[float]:
    """Return the seconds of each record through the chain."""
    with chain() as port, closing(await Asker.connected(port)) as asker:
        request = json_like(1_024)
        return await timed(asker, FRAME_SIZE.pack(len(request)) + request, records, check_answer)


def check_answer(answer: bytes) -> None:
    """Raise RuntimeError if this is not the chain's answer."""
    if answer != ANSWER:
        raise RuntimeError(f"the chain answered {answer!r}")


# ---------------------------------------------------------------- Ottla


async def through_ottla(cluster: Cluster, records: int) -> list[float]:
    """Return the seconds of each record that the leader of a partition takes with acks=all."""
    topic = new_topic(cluster, admin_of(cluster), 1)
    leader = admin_of(cluster).list_topics(topic, 30).topics[topic].partitions[0].leader
    batch = encode_batch([(None, json_like(1_024), round(time.time() * 1e3))])
    parts = [PartitionProduceData(index=0, records=batch)]
    message = ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=parts)]
    )
    request = encode_request(message, PRODUCE_VERSION, 1, "benchmark")
    address = BrokerAddress(leader, "127.0.0.1", cluster.broker(leader).port)
    with closing(await Asker.connected(address.port)) as asker:
        return await timed(asker, request, records, check_produced)


def check_produced(answer: bytes) -> None:
    """Raise RuntimeError if a broker has refused the record."""
    _, response = decode_response(ProduceRequest, memoryview(answer), PRODUCE_VERSION)
    code = response.responses[0].partition_responses[0].error_code
    if code != ErrorCode.NONE:
        raise RuntimeError(f"the record was refused: {ErrorCode.of(code).name}")


async def timed(asker: Asker, request: bytes, records: int, check: Callable[[bytes], None]) -> list[float]:
    """Return the seconds of each request, after a warm-up."""
    took_s = []
    async with asyncio.timeout(DEADLINE_S + records * 0.05):
        for number in range(WARM_UP + records):
            began_s = time.perf_counter()
            answer = await asker.ask(request)
            took_s.append(time.perf_counter() - began_s)
            if number == 0:
                check(answer)
    return took_s[WARM_UP:]


def main() -> None:
    """Run the benchmark; see the module's documentation."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=5_000, help="in each round (5,000)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--record", type=Path, help="append the readings to this file")
    arguments = parser.parse_args()
    console = Console()
    found: dict[str, list[list[float]]] = {"chain": [], "ottla": []}
    with tempfile.TemporaryDirectory(prefix="chain-") as folder, ottla_cluster(Path(folder)) as cluster:
        for _ in range(arguments.rounds):
            found["chain"].append(uvloop.run(through_chain(arguments.records)))
            found["ottla"].append(uvloop.run(through_ottla(cluster, arguments.records)))
    readings = {
        name: {
            f"p{percent}, ms": statistics.median(percentile(took, percent) for took in rounds) * 1e3
            for percent in (50, 99)
        }
        for name, rounds in found.items()
    }
    table = Table("one record in flight", *readings, "ratio", "goal")
    for name in ("p50, ms", "p99, ms"):
        values = [row[name] for row in readings.values()]
        goal = f"<= {GOAL}" if name == "p50, ms" else ""
        table.add_row(name, *(f"{value:.3f}" for value in values), f"{values[1] / values[0]:.2f}", goal)
    console.print(table)
    if arguments.record is not None:
        record(arguments.record, rounds=arguments.rounds, records=arguments.records, results=readings)


if __name__ == "__main__":
    main()

"""Compares commits of offsets in Ottla and Apache Kafka: OffsetCommit requests a second, and the time of each.

    python -m benchmarks.offset_commits [FIGURE ...] [--seconds N] [--only ottla|kafka] [--rounds N] [--record FILE]

FIGURES: one-partition ten-partitions (both without arguments). Three brokers; `__consumer_offsets` has three replicas
and 50 partitions, the default of both. 1, 8 and 64 connections have one request in flight each. Every connection is the
only member of a group (classic protocol), which it has joined, and commits for 1 or 10 partitions in a request.

The connections run in this process. They send an encoded request in which only the offset changes, and compare the
answer with the first one, byte by byte. So the load takes little of the processors, which it shares with the brokers.
The first third of the seconds is a warm-up. A run of 8 connections comes before the first measurement.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Final, cast

import uvloop

from ottla.client.connections.metadata import BrokerAddress
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.headers import FRAME_SIZE, decode_response, encode_request
from ottla.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

from .clusters import Cluster
from .compare import admin_of, cpu_seconds, new_topic
from .group_loads import ClassicMember, Fleet, linked
from .rounds import Figure, Goal, Launch, Row, command_line, compare, parsed, percentile

CONNECTIONS: Final = (1, 8, 64)
FIGURES: Final = {"one-partition": 1, "ten-partitions": 10}
"""Partitions in a request, by the name of the figure."""
VERSION: Final = 9
"""The last version that names topics."""
MARK: Final = 0x0123_4567_89AB_CDEF
"""The offset in the encoded request, to find its places."""
WARM_UP: Final = 8
"""Number of connections before the first measurement, as a JVM compiles code while it runs."""
SETTLE_S: Final = 60.0
GOALS = {f"{count} connections, requests/s": Goal(3, is_least=True) for count in CONNECTIONS}


class Committer(asyncio.Protocol):
    """A connection with one OffsetCommit in flight, while `end_s` is ahead."""

    def __init__(self, request: bytes) -> None:
        self._request = bytearray(request)
        mark = MARK.to_bytes(8, "big")
        self._places: list[int] = []
        place = request.find(mark)
        while place >= 0:
            self._places.append(place)
            place = request.find(mark, place + len(mark))
        self._offset = 0
        self._received = bytearray()
        self._first: bytes | None = None
        self._transport: asyncio.WriteTransport | None = None
        self._sent_s = 0.0
        self.end_s = 0.0
        self.took_s: list[float] = []
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.WriteTransport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail, if the broker closes the connection."""
        if not self.ended.done():
            self.ended.set_exception(exc or ConnectionError("the broker closed the connection"))

    def send(self) -> None:
        """Send the next commit."""
        assert self._transport is not None
        self._offset += 1
        offset = self._offset.to_bytes(8, "big")
        for place in self._places:
            self._request[place : place + 8] = offset
        self._sent_s = time.perf_counter()
        self._transport.write(bytes(self._request))

    def data_received(self, data: bytes) -> None:
        """Check the answer, and send the next request."""
        self._received += data
        size = FRAME_SIZE.size
        if (
            len(self._received) < size
            or len(self._received) < size + FRAME_SIZE.unpack_from(self._received)[0]
        ):
            return
        now_s = time.perf_counter()
        answer = bytes(self._received)
        self._received.clear()
        if answer != self._first:
            self._check(answer)
            self._first = answer
        self.took_s.append(now_s - self._sent_s)
        if now_s < self.end_s:
            self.send()
        else:
            self.ended.set_result(None)

    def _check(self, answer: bytes) -> None:
        _, response = decode_response(OffsetCommitRequest, memoryview(answer)[FRAME_SIZE.size :], VERSION)
        codes = {part.error_code for topic in response.topics for part in topic.partitions}
        if codes != {ErrorCode.NONE}:
            raise RuntimeError(f"a commit was refused: {[ErrorCode.of(code).name for code in codes]}")


def figure(partitions: int, seconds: float, launch: Launch, data: Path) -> Row:
    """Start a cluster, and measure each number of connections."""
    with launch(data) as cluster:
        topic = new_topic(cluster, admin_of(cluster), partitions)
        uvloop.run(commits(cluster, topic, partitions, WARM_UP, seconds))
        row: Row = {}
        for count in CONNECTIONS:
            row |= uvloop.run(commits(cluster, topic, partitions, count, seconds))
        return row


async def commits(cluster: Cluster, topic: str, partitions: int, count: int, seconds: float) -> Row:
    """Measure `count` connections: CPU is for a request. Each joins its group, and then commits on another
    connection.
    """
    async with AsyncExitStack() as stack:
        committers = [
            await _joined(stack, cluster, topic, partitions, f"committing-{count}-{n}") for n in range(count)
        ]
        began_s = time.perf_counter()
        warm_s, end_s = began_s + seconds / 3, began_s + seconds
        for committer in committers:
            committer.end_s = end_s
            committer.send()
        await asyncio.sleep(warm_s - time.perf_counter())
        warm = [len(committer.took_s) for committer in committers]
        cpu_s, from_s = cpu_seconds(cluster.brokers), time.perf_counter()
        await asyncio.gather(*(committer.ended for committer in committers))
        cpu_s, elapsed_s = cpu_seconds(cluster.brokers) - cpu_s, time.perf_counter() - from_s
    took_s = _after(committers, warm)
    return {
        f"{count} connections, requests/s": len(took_s) / elapsed_s,
        **{f"{count} connections, p{p} ms": percentile(took_s, p) * 1e3 for p in (50, 99)},
        f"{count} connections, CPU of brokers, ms": cpu_s / len(took_s) * 1e3,
    }


def _after(committers: Sequence[Committer], warm: Sequence[int]) -> list[float]:
    """Return the times of all requests after the warm-up."""
    return [took for each, first in zip(committers, warm, strict=True) for took in each.took_s[first:]]


async def _joined(
    stack: AsyncExitStack, cluster: Cluster, topic: str, partitions: int, group_id: str
) -> Committer:
    """Let a member join a group, and return a connection that commits for it."""
    (link,) = await stack.enter_async_context(linked(cluster.bootstrap, group_id, 1))
    fleet = Fleet(partitions)
    member = ClassicMember(fleet, 0, link, topic)
    running = asyncio.create_task(member.run(partitions))
    stack.callback(running.cancel)
    await fleet.settled(1, SETTLE_S)
    return await _committer(stack, link.address, _request(member, group_id, topic, partitions))


async def _committer(stack: AsyncExitStack, address: BrokerAddress, request: bytes) -> Committer:
    loop = asyncio.get_running_loop()
    transport, committer = await loop.create_connection(
        partial(Committer, request), address.host, address.port
    )
    stack.callback(transport.close)
    return committer


def _request(member: ClassicMember, group_id: str, topic: str, partitions: int) -> bytes:
    parts = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=MARK, committed_metadata="")
        for index in range(partitions)
    ]
    message = OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=member.generation,
        member_id=member.member_id,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=parts)],
    )
    return encode_request(message, VERSION, 1, "benchmark")


def main() -> int:
    """Run the benchmark; see the module's documentation."""
    parser = command_line(__doc__, FIGURES, rounds=2)
    parser.add_argument("--seconds", type=float, default=9.0, help="for each number of connections (9)")
    args = parsed(parser, FIGURES)
    figures: dict[str, Figure] = {
        name: partial(figure, partitions, args.seconds) for name, partitions in FIGURES.items()
    }
    compare(args, figures, goals=GOALS, load={"seconds": args.seconds})
    return 0


if __name__ == "__main__":
    sys.exit(main())

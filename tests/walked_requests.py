"""Four requests to a real broker and a real quorum node in this process, and the functions that they enter.

Both nodes are built as `ottla broker` and `ottla quorum` build them. They run on one event loop and communicate over
loopback. A profiler notes each call of the product from the moment a request is sent until its answer is complete.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import uvloop

from ottla.cli.local_cluster.layout import open_layout
from ottla.cli.nodes.node import build, resolved
from ottla.cli.nodes.settings import read_settings
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.headers import decode_response, encode_request
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.producers import InitProducerIdRequest
from ottla.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.transactions import EndTxnRequest
from ottla.protocol.records.record import encode_batch
from ottla.protocol.wire.schema import Message, Request

Entry = tuple[str, str]
"""A file by its path from the root, and the qualified name of a function in it."""
Walk = list[Entry]
"""The functions that a request entered, in the order of their first entry."""
Ask = Callable[[], Awaitable[Walk]]

PRODUCE, FETCH, CREATE, END = "A produced record", "A fetch", "A metadata command", "EndTxn"
PRODUCE_VERSION, FETCH_VERSION, INIT_VERSION, CREATE_VERSION, END_VERSION = 13, 17, 5, 7, 5
PRODUCT = ("dataplane/", "metadata_quorum/", "network/", "protocol/")
ROOT = Path(__file__).resolve().parents[1]
ATTEMPTS = 40
PAUSE_S = 0.04
"""Seconds of pause in which leftover timers of the previous request fire."""
QUIET = {
    "offsets.topic.num.partitions": "1",
    "broker.session.timeout.ms": "60000",
    "broker.heartbeat.interval.ms": "20000",
}
"""Settings that reduce the background work of the nodes."""


class Profiler:
    """A record of the product's functions that any thread enters while it is on."""

    def __init__(self) -> None:
        self._on = False
        self._entered: dict[Entry, None] = {}

    @contextmanager
    def on(self) -> Iterator[None]:
        """Start a new record, which ends with the block."""
        self._entered = {}
        before = sys.getprofile()
        self._on = True
        sys.setprofile(self._profiled)
        try:
            yield
        finally:
            sys.setprofile(before)
            self._on = False

    @contextmanager
    def in_new_threads(self) -> Iterator[None]:
        """Record threads that start in the block, too."""
        threading.setprofile(self._profiled)
        try:
            yield
        finally:
            threading.setprofile(None)

    def walk(self) -> Walk:
        """Return the functions of the last record, without modules that were loaded meanwhile."""
        return [entry for entry in self._entered if entry[1] != "<module>"]

    def _profiled(self, frame: FrameType, event: str, _argument: object) -> None:
        if not self._on or event != "call":
            return
        name = frame.f_code.co_filename
        if name.startswith(f"{ROOT}/"):
            file = name[len(str(ROOT)) + 1 :]
            if file.startswith(PRODUCT):
                self._entered.setdefault((file, frame.f_code.co_qualname))


class Peer:
    """A connection to the broker, on the loop on which the broker runs."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, profiler: Profiler
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._profiler = profiler

    async def ask(self, message: Message, version: int) -> Any:
        """Send a request and return the answer."""
        return (await self.walked(message, version))[0]

    async def walked(self, message: Message, version: int) -> tuple[Any, Walk]:
        """Return the answer, and the walk of the request."""
        assert isinstance(message, Request)
        frame = encode_request(message, version, 7, "walk")
        with self._profiler.on():
            self._writer.write(frame)
            size = int.from_bytes(await self._reader.readexactly(4), "big")
            answer = await self._reader.readexactly(size)
        return decode_response(type(message), answer, version)[1], self._profiler.walk()

    def close(self) -> None:
        """Hang up."""
        self._writer.close()


class Requests:
    """The four requests, each of which can be made again and again."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._topic_id = b""
        self._topics = 0
        self._writer = (-1, -1)
        self._sequence = 0
        self._transactional = (-1, -1)

    async def prepare(self) -> None:
        """Create a topic, and obtain the ids of two producers."""
        answer = await self._peer.ask(self._create(), CREATE_VERSION)
        self._topic_id = answer.topics[0].topic_id
        self._writer = await self._init(InitProducerIdRequest(transactional_id=None))
        self._transactional = await self._init(
            InitProducerIdRequest(transactional_id="walk", transaction_timeout_ms=60_000)
        )

    async def produce(self) -> Walk:
        """Walk a Produce request: one record of an idempotent producer, with `acks=all`."""
        producer_id, epoch = self._writer
        batch = self._batch(producer_id, epoch, self._sequence)
        self._sequence += 1
        answer, walk = await self._peer.walked(self._produce(None, batch), PRODUCE_VERSION)
        _check(answer.responses[0].partition_responses[0].error_code)
        return walk

    async def fetch(self) -> Walk:
        """Walk a Fetch request in a new session that finds records and does not wait."""
        partition = FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=1 << 20)
        message = FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=1 << 20,
            session_id=0,
            session_epoch=0,
            topics=[FetchTopic(topic_id=self._topic_id, partitions=[partition])],
        )
        answer, walk = await self._peer.walked(message, FETCH_VERSION)
        _check(answer.responses[0].partitions[0].error_code)
        assert answer.responses[0].partitions[0].records
        return walk

    async def create(self) -> Walk:
        """Walk a CreateTopics request for a topic of one partition."""
        answer, walk = await self._peer.walked(self._create(), CREATE_VERSION)
        _check(answer.topics[0].error_code)
        return walk

    async def end(self) -> Walk:
        """Walk an EndTxn request that commits a transaction of one record."""
        producer_id, epoch = self._transactional
        batch = self._batch(producer_id, epoch, 0, transactional=True)
        produced = await self._peer.ask(self._produce("walk", batch), PRODUCE_VERSION)
        _check(produced.responses[0].partition_responses[0].error_code)
        await asyncio.sleep(PAUSE_S)
        message = EndTxnRequest(
            transactional_id="walk", producer_id=producer_id, producer_epoch=epoch, committed=True
        )
        answer, walk = await self._peer.walked(message, END_VERSION)
        _check(answer.error_code)
        self._transactional = answer.producer_id, answer.producer_epoch
        return walk

    def _create(self) -> CreateTopicsRequest:
        self._topics += 1
        topic = CreatableTopic(name=f"walk-{self._topics}", num_partitions=1, replication_factor=1)
        return CreateTopicsRequest(topics=[topic])

    async def _init(self, message: InitProducerIdRequest) -> tuple[int, int]:
        answer = await self._peer.ask(message, INIT_VERSION)
        _check(answer.error_code)
        return answer.producer_id, answer.producer_epoch

    def _batch(self, producer_id: int, epoch: int, sequence: int, *, transactional: bool = False) -> bytes:
        batch = encode_batch(
            [(b"key", b"value", 1_700_000_000_000)],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
        return bytes(batch)

    def _produce(self, transactional_id: str | None, batch: bytes) -> ProduceRequest:
        data = PartitionProduceData(index=0, records=batch)
        return ProduceRequest(
            transactional_id=transactional_id,
            acks=-1,
            timeout_ms=30_000,
            topic_data=[TopicProduceData(topic_id=self._topic_id, partition_data=[data])],
        )


def _check(code: int) -> None:
    assert code == ErrorCode.NONE, ErrorCode(code)


async def _first_that_fits(ask: Ask, fits: Callable[[Walk], bool]) -> Walk:
    """Return the first walk that `fits`; after `ATTEMPTS` the shortest, in which the least else has happened."""
    await ask()  # with the first one, modules are loaded and codecs made
    walks = []
    for _ in range(ATTEMPTS):
        await asyncio.sleep(PAUSE_S)
        walks.append(await ask())
        if fits(walks[-1]):
            return walks[-1]
    return min(walks, key=len)


async def _walks(directory: Path, fits: Callable[[str, Walk], bool], profiler: Profiler) -> dict[str, Walk]:
    layout = open_layout(directory, quorum=1, brokers=1, base_port=None)
    for reserved in layout.reserved:
        reserved.close()
    layout.write(QUIET)
    nodes = [
        build(member.role, resolved(read_settings(layout.settings_file(member)))) for member in layout.members
    ]
    try:
        for node in nodes:
            await node.start()
        peer = Peer(*await asyncio.open_connection("127.0.0.1", layout.brokers[0].port), profiler)
        requests = Requests(peer)
        await requests.prepare()
        asks: dict[str, Ask] = {
            PRODUCE: requests.produce,
            FETCH: requests.fetch,
            CREATE: requests.create,
            END: requests.end,
        }
        walks = {}
        for name, ask in asks.items():
            walks[name] = await _first_that_fits(ask, lambda walk, name=name: fits(name, walk))  # type: ignore[misc]
        peer.close()
        return walks
    finally:
        for node in reversed(nodes):
            await node.stop()


def walks(directory: Path, fits: Callable[[str, Walk], bool]) -> dict[str, Walk]:
    """Return a walk of each request, by its name.

    Timers of the nodes may fire in the middle of a request. So it is made again until its walk `fits`, as a walk with
    nothing else in it does, or `ATTEMPTS` times.
    """
    profiler = Profiler()
    with profiler.in_new_threads():
        return uvloop.run(_walks(directory, fits, profiler))

"""Brokers in the test's event loop that follow the protocol, and misbehave when a script asks for it.

They keep produced batches in lists and check producer ids, epochs and sequences like a real broker, so that a client
that reorders, repeats or skips records is detected.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum, auto

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
)
from ottla.protocol.messages.headers import decode_request_header, response_header
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.protocol.messages.producers import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.records.record import decode_records
from ottla.protocol.records.record_batch import BatchHeader, walk_batches
from ottla.protocol.wire.codec import decode, encode
from ottla.protocol.wire.schema import Message, Request

WINDOW = 5


class Fault(Enum):
    """A fault of one produce request."""

    NONE = auto()
    DROP_BEFORE = auto()
    """The connection breaks before anything was appended."""
    DROP_AFTER = auto()
    """The batches are appended and the answer is lost."""
    NOT_LEADER = auto()
    MOVE_LEADER = auto()
    """The request is refused, and from now on another broker leads every partition."""
    HANG = auto()
    """The broker falls silent on this connection, and another one leads from now on."""
    NOT_ENOUGH_REPLICAS = auto()
    """The request is refused, and nothing was appended."""
    INVALID_TIMESTAMP = auto()
    """The request is refused for good, and the broker forgets all producers."""
    REFUSED = auto()
    """The request is refused for good, without other effects."""
    TIMED_OUT_AFTER = auto()
    """The batches are appended; the answer says that replicas were too slow."""


@dataclass
class PartitionLog:
    """A partition: its values in order, and a broker's state of its producers."""

    values: list[bytes] = field(default_factory=list)
    leader: int = 0
    leader_epoch: int = 0
    producers: dict[int, tuple[int, list[tuple[int, int, int]]]] = field(default_factory=dict)

    def append(self, header: BatchHeader, values: list[bytes]) -> tuple[ErrorCode, int]:
        """Append like a broker, and return the error and the base offset."""
        if header.producer_id >= 0:
            # An unknown producer may start with any sequence (KIP-360).
            epoch, window = self.producers.get(header.producer_id, (header.producer_epoch, []))
            if header.producer_epoch < epoch:
                return ErrorCode.INVALID_PRODUCER_EPOCH, -1
            if header.producer_epoch > epoch:
                if header.base_sequence != 0:
                    return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
                window = []
            for first, last, offset in window:
                if (first, last) == (header.base_sequence, header.last_sequence):
                    return ErrorCode.NONE, offset
            if window and header.base_sequence != window[-1][1] + 1:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            entry = (header.base_sequence, header.last_sequence, len(self.values))
            self.producers[header.producer_id] = (header.producer_epoch, [*window, entry][-WINDOW:])
        offset = len(self.values)
        self.values += values
        return ErrorCode.NONE, offset


class FakeCluster:
    """Some brokers on free ports. `fault` is called before every produce request."""

    def __init__(self, topic: str, partitions: int, fault: Callable[[], Fault]) -> None:
        self.topic = topic
        self.logs = [PartitionLog() for _ in range(partitions)]
        self.fault = fault
        self.produce_requests = 0
        self.metadata_requests = 0
        self.names_leaders = False
        """True if refusals name the leader and its address (KIP-951)."""
        self.told_leader: tuple[int, int] | None = None
        """Broker and epoch that refusals name instead, as an outdated broker does."""
        self.hidden: set[int] = set()
        """Brokers that are missing in metadata."""
        self.batches_at_once = 0
        """Largest number of batches in a request."""
        self.batch_bytes_max: int | None = None
        """Size above which batches are refused before any other check."""
        self.too_large = ErrorCode.MESSAGE_TOO_LARGE
        """Error for batches that are too large."""
        self.refused_sizes: list[int] = []
        self.hangs = False
        self.ports: list[int] = []
        self._servers: list[asyncio.Server] = []
        self._writers: set[asyncio.StreamWriter] = set()
        self._next_producer_id = 1000
        self.served: list[type[Request[Message]]] = [
            ApiVersionsRequest,
            MetadataRequest,
            ProduceRequest,
            InitProducerIdRequest,
        ]
        self.features: dict[str, int] = {}

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    async def start(self, brokers: int) -> None:
        for broker in range(brokers):
            server = await asyncio.start_server(self._serving(broker), "127.0.0.1", 0)
            self._servers.append(server)
            self.ports.append(server.sockets[0].getsockname()[1])
        for index, log in enumerate(self.logs):
            log.leader = index % brokers

    async def stop(self) -> None:
        for server in self._servers:
            server.close()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*(server.wait_closed() for server in self._servers))

    async def restart(self) -> None:
        """Start again at the same addresses, after `stop`."""
        self._servers = [
            await asyncio.start_server(self._serving(broker), "127.0.0.1", port)
            for broker, port in enumerate(self.ports)
        ]

    def move_leaders(self) -> None:
        for log in self.logs:
            log.leader = (log.leader + 1) % len(self.ports)
            log.leader_epoch += 1

    def _serving(self, broker: int) -> Callable[..., object]:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._writers.add(writer)
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                while True:
                    size = struct.unpack(">i", await reader.readexactly(4))[0]
                    frame = memoryview(await reader.readexactly(size))
                    await self.before_answer(struct.unpack_from(">h", frame)[0])
                    answer = self._answer(broker, frame)
                    if self.hangs:
                        self.hangs = False
                        await reader.read()
                    if answer is None:
                        break
                    writer.write(struct.pack(">i", len(answer)) + answer)
            self._writers.discard(writer)
            writer.transport.abort()

        return serve

    def _answer(self, broker: int, frame: memoryview) -> bytes | None:
        header, position = decode_request_header(frame)
        served = {request.api_key: request for request in self.served}
        request = decode(served[header.api_key], frame, header.api_version, position)
        response: Message | None
        match request:
            case ApiVersionsRequest():
                response = ApiVersionsResponse(
                    api_keys=[
                        ApiVersion(api_key=key, min_version=kind.min_version, max_version=kind.max_version)
                        for key, kind in served.items()
                    ],
                    finalized_features_epoch=0,
                    finalized_features=[
                        FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
                        for name, level in self.features.items()
                    ],
                )
            case MetadataRequest():
                self.metadata_requests += 1
                response = self._metadata([topic.name for topic in request.topics or ()])
            case InitProducerIdRequest(transactional_id=None):
                response = InitProducerIdResponse(producer_id=self.next_producer_id(), producer_epoch=0)
            case ProduceRequest():
                response = self._produce(broker, request, header.api_version)
            case _:
                response = self.answer_other(broker, request, header.api_version)
        if response is None:
            return None
        return response_header(header.api_key, header.api_version, header.correlation_id) + encode(
            response, header.api_version
        )

    async def before_answer(self, api_key: int) -> None:
        """Wait before an answer, if the test's broker is slow."""

    def next_producer_id(self) -> int:
        self._next_producer_id += 1
        return self._next_producer_id

    def answer_other(self, broker: int, request: Request[Message], version: int) -> Message | None:
        """Answer a request of an API that only a test's cluster has; None breaks the connection."""
        raise AssertionError(request)

    def admits(self, request: ProduceRequest, version: int, index: int, header: BatchHeader) -> ErrorCode:
        """Return the error for appending a batch to a partition."""
        return ErrorCode.NONE

    def _judged(self, request: ProduceRequest, version: int, index: int, header: BatchHeader) -> ErrorCode:
        if self.batch_bytes_max is not None and header.size > self.batch_bytes_max:
            self.refused_sizes.append(header.size)
            return self.too_large
        return self.admits(request, version, index, header)

    def appended(self, index: int, header: BatchHeader, values: list[bytes]) -> None:
        """Note that a batch was appended for the first time."""

    def _metadata(self, asked: Sequence[str | None]) -> MetadataResponse:
        partitions = [
            MetadataResponsePartition(
                partition_index=index,
                leader_id=log.leader,
                leader_epoch=log.leader_epoch,
                replica_nodes=[log.leader],
            )
            for index, log in enumerate(self.logs)
        ]
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=number, host="127.0.0.1", port=port)
                for number, port in enumerate(self.ports)
                if number not in self.hidden
            ],
            cluster_id="fake",
            controller_id=0,
            topics=[
                MetadataResponseTopic(name=name, topic_id=b"t" * 16, partitions=partitions)
                for name in asked
                if name == self.topic
            ],
        )

    def _produce(self, broker: int, request: ProduceRequest, version: int) -> ProduceResponse | None:
        self.produce_requests += 1
        fault = self.fault()
        if fault is Fault.DROP_BEFORE:
            return None
        if fault is Fault.HANG:
            self.hangs = True
        if fault in (Fault.MOVE_LEADER, Fault.HANG):
            self.move_leaders()
        batches = sum(len(topic.partition_data) for topic in request.topic_data)
        self.batches_at_once = max(self.batches_at_once, batches)
        answers = []
        for topic in request.topic_data:
            for data in topic.partition_data:
                log = self.logs[data.index]
                code, offset = ErrorCode.NOT_LEADER_OR_FOLLOWER, -1
                if log.leader == broker and fault is Fault.NOT_ENOUGH_REPLICAS:
                    code = ErrorCode.NOT_ENOUGH_REPLICAS
                elif fault is Fault.REFUSED:
                    code = ErrorCode.INVALID_RECORD
                elif fault is Fault.INVALID_TIMESTAMP:
                    code = ErrorCode.INVALID_TIMESTAMP
                    log.producers.clear()
                elif log.leader == broker and fault is not Fault.NOT_LEADER:
                    assert data.records is not None
                    for position, header in walk_batches(data.records):
                        batch = memoryview(data.records)[position:]
                        values = [record.value or b"" for record in decode_records(batch)]
                        code, offset = self._judged(request, version, data.index, header), -1
                        if code == ErrorCode.NONE:
                            before = len(log.values)
                            code, offset = log.append(header, values)
                            if len(log.values) > before:
                                self.appended(data.index, header, values)
                    if fault is Fault.TIMED_OUT_AFTER and code == ErrorCode.NONE:
                        code = ErrorCode.REQUEST_TIMED_OUT
                answer = PartitionProduceResponse(index=data.index, error_code=code, base_offset=offset)
                if self.names_leaders and code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    leader, epoch = self.told_leader or (log.leader, log.leader_epoch)
                    answer.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
                answers.append(answer)
        if fault is Fault.DROP_AFTER:
            return None
        named = {answer.current_leader.leader_id for answer in answers} - {-1}
        return ProduceResponse(
            responses=[TopicProduceResponse(name=self.topic, partition_responses=answers)],
            node_endpoints=[
                NodeEndpoint(node_id=leader, host="127.0.0.1", port=self.ports[leader]) for leader in named
            ],
        )


@asynccontextmanager
async def fake_cluster(
    *, brokers: int = 1, partitions: int = 1, fault: Callable[[], Fault] = lambda: Fault.NONE
) -> AsyncIterator[FakeCluster]:
    """Run brokers that serve topic `t` until the block ends."""
    cluster = FakeCluster("t", partitions, fault)
    await cluster.start(brokers)
    try:
        yield cluster
    finally:
        await cluster.stop()

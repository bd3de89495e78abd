"""A broker's replicas and its Fetch handler without sockets, and consumers that send requests to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from ottla.dataplane.handlers.fetch import FetchHandlers, FetchSettings
from ottla.dataplane.log import LogConfig
from ottla.dataplane.quotas import ClientQuotas, QuotaWindows
from ottla.dataplane.replication.replica.partition import Partition
from ottla.dataplane.replication.replica.settings import ReplicationSettings, TopicSettings
from ottla.dataplane.replication.replicas.replicas import Replicas, ReplicasConfig
from ottla.dataplane.runtime.clocks import wall_ms
from ottla.dataplane.security.peer_session import PeerSession
from ottla.dataplane.security.principal import ANONYMOUS
from ottla.dataplane.server.connection import ClientConnection
from ottla.dataplane.server.handler import ClientRequest, HandlerTable
from ottla.dataplane.server.purgatory import Purgatory
from ottla.dataplane.server.router import Router
from ottla.dataplane.server.sending import Part
from ottla.dataplane.storage.log_store import LogStore
from ottla.protocol.cluster.cluster_image import ClusterImage
from ottla.protocol.cluster.image_delta import ImageDelta
from ottla.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from ottla.protocol.messages.headers import decode_response, encode_request
from ottla.protocol.messages.metadata_records import (
    BrokerListener,
    BrokerRecord,
    PartitionRecord,
    TopicRecord,
    TopicRemovedRecord,
)
from ottla.protocol.records.record_batch import HEADER_SIZE
from tests.node_credentials import credentials

from ..replication.harness import batch

OWN_ID, OTHER_ID = 1, 2
LISTENER = "PLAINTEXT"


class Wire:
    """The part of a connection that handlers need; it keeps the answers."""

    closed = False
    shortcut: Callable[[ClientConnection, memoryview, float], bool] | None = None

    def __init__(self) -> None:
        self.session = PeerSession(ANONYMOUS, "127.0.0.1", LISTENER)
        self.answers: list[bytes] = []
        self.arrived = asyncio.Event()
        self.on_close: list[Callable[[], None]] = []

    def expect(self, request: ClientRequest) -> None:
        pass

    def answer(self, request: ClientRequest, parts: Sequence[Part]) -> None:
        whole = b""
        for part in parts:
            if isinstance(part, bytes | bytearray | memoryview):
                whole += part
            else:
                whole += cast(Any, part).read()
                part.release()
        self.answers.append(whole[4:])
        self.arrived.set()

    def mute(self, for_ms: int) -> None:
        pass

    def hold(self) -> None:
        pass

    def go_on(self) -> None:
        pass

    def call_on_close(self, callback: Callable[[], None]) -> None:
        self.on_close.append(callback)

    def close(self) -> None:
        self.closed = True
        for callback in self.on_close:
            callback()

    def close_after_replies(self, request: ClientRequest) -> None:
        self.close()


class Shelf:
    """A broker that leads or follows, as the test decides. It must be made inside a running loop."""

    def __init__(self, directory: Path, settings: FetchSettings | None = None) -> None:
        self.image = ClusterImage()
        self.logs = LogStore.open([directory], "cluster", OWN_ID, wall_ms)
        topic_settings = TopicSettings(LogConfig(), ReplicationSettings(1, 10_000, False))
        self.replicas = Replicas(
            ReplicasConfig(credentials(OWN_ID), LISTENER),
            self.logs,
            self.image,
            lambda _: topic_settings,
            _no_isr,
            lambda: 1,
        )
        loop = asyncio.get_running_loop()
        self.handlers = FetchHandlers(self.replicas, Purgatory(loop), settings)
        self.router = Router(HandlerTable(self.handlers), loop, ClientQuotas(QuotaWindows()))
        self.broker(OWN_ID, rack="a")
        self.broker(OTHER_ID, rack="b")

    def tell(self, *records: Any) -> None:
        """Apply records of the metadata feed."""
        delta = ImageDelta()
        for record in records:
            delta.note(record)
            self.image.apply(record)
        self.replicas.image_changed(self.image, delta)

    def broker(self, broker_id: int, *, rack: str, fenced: bool = False) -> None:
        listener = BrokerListener(name=LISTENER, host="127.0.0.1", port=1, security_protocol="PLAINTEXT")
        self.tell(
            BrokerRecord(
                broker_id=broker_id, broker_epoch=broker_id, listeners=[listener], rack=rack, fenced=fenced
            )
        )

    def create(self, name: str, topic_id: bytes, partitions: int) -> None:
        self.tell(
            TopicRecord(topic_id=topic_id, name=name),
            *(self.state(topic_id, index) for index in range(partitions)),
        )

    def state(
        self,
        topic_id: bytes,
        index: int,
        *,
        leader: int = OWN_ID,
        epoch: int = 0,
        isr: Sequence[int] = (OWN_ID,),
    ) -> PartitionRecord:
        return PartitionRecord(
            topic_id=topic_id,
            partition=index,
            replicas=[OWN_ID, OTHER_ID],
            isr=list(isr),
            leader=leader,
            leader_epoch=epoch,
            partition_epoch=epoch + 1,
        )

    def delete(self, topic_id: bytes) -> None:
        self.tell(TopicRemovedRecord(topic_id=topic_id))

    def replica(self, name: str, index: int = 0) -> Partition:
        return self.replicas.get(name, index)

    def append(
        self, name: str, index: int = 0, value: bytes = b"v", *, count: int = 1, attributes: int = 0
    ) -> None:
        self.replica(name, index).append(
            memoryview(batch(value, count=count, attributes=attributes)), required_acks=1
        )

    async def close(self) -> None:
        self.handlers.close()
        await self.replicas.close()
        self.logs.close(clean=False, broker_epoch=1)


async def _no_isr(*arguments: Any) -> Any:
    await asyncio.Event().wait()


class Consumer:
    """A consumer with one version, on a separate connection."""

    def __init__(self, shelf: Shelf, version: int = 18, rack: str = "") -> None:
        self.shelf, self.version, self.rack = shelf, version, rack
        self.adapter = Wire()
        self.frame = memoryview(b"")

    def send(self, topics: Sequence[FetchTopic] = (), **fields: Any) -> None:
        fields = {"max_wait_ms": 0, "min_bytes": 1, "session_epoch": -1, "rack_id": self.rack} | fields
        message = FetchRequest(topics=list(topics), **fields)
        self.frame = memoryview(encode_request(message, self.version, 7, "test"))[4:]
        self.adapter.arrived.clear()
        self.shelf.router.dispatch(cast(ClientConnection, self.adapter), self.frame)

    def take(self) -> FetchResponse:
        """Return the oldest answer."""
        correlation_id, response = decode_response(FetchRequest, self.adapter.answers.pop(0), self.version)
        assert correlation_id == 7
        return response

    def fetch(self, topics: Sequence[FetchTopic] = (), **fields: Any) -> FetchResponse:
        """Return an answer that does not wait."""
        self.send(topics, **fields)
        return self.take()

    async def answered(self) -> FetchResponse:
        await asyncio.wait_for(self.adapter.arrived.wait(), 60)
        return self.take()


def wanted(topic_id: bytes, *positions: tuple[int, int], name: str = "", **fields: Any) -> FetchTopic:
    """Return a request for (partition, offset) pairs of a topic."""
    parts = [
        FetchPartition(partition=index, fetch_offset=offset, **({"partition_max_bytes": 1 << 20} | fields))
        for index, offset in positions
    ]
    return FetchTopic(topic=name, topic_id=topic_id, partitions=parts)


def parts_of(response: FetchResponse) -> dict[tuple[bytes | str, int], PartitionData]:
    """Return the parts of an answer by topic and partition."""
    return {
        (topic.topic or topic.topic_id, part.partition_index): part
        for topic in response.responses
        for part in topic.partitions
    }


def offsets(part: PartitionData) -> list[int]:
    """Return the base offsets of the batches in an answer."""
    found, at, data = [], 0, bytes(part.records or b"")
    while at + HEADER_SIZE <= len(data):
        found.append(int.from_bytes(data[at : at + 8], "big"))
        at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    return found

"""Servers, fetchers and handlers of three brokers on one event loop, over loopback, with a compare-and-set in place of
the quorum.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from ottla.dataplane.handlers.authenticate_node import AuthenticateNodeHandlers
from ottla.dataplane.handlers.fetch import FetchHandlers
from ottla.dataplane.handlers.init_producer_id import InitProducerIdHandlers
from ottla.dataplane.handlers.list_offsets import ListOffsetsHandlers
from ottla.dataplane.handlers.offset_for_leader_epoch import OffsetForLeaderEpochHandlers
from ottla.dataplane.handlers.produce import ProduceHandlers
from ottla.dataplane.log import LogConfig
from ottla.dataplane.replication.follower.fetcher import LinkSettings
from ottla.dataplane.replication.leader.isr_submission import submit_to
from ottla.dataplane.replication.replica.partition import Partition
from ottla.dataplane.replication.replica.settings import ReplicationSettings, TopicSettings
from ottla.dataplane.replication.replicas.offline import report_to
from ottla.dataplane.replication.replicas.rebuilding import rebuild_with
from ottla.dataplane.replication.replicas.replicas import Replicas, ReplicasConfig
from ottla.dataplane.runtime.clocks import wall_ms
from ottla.dataplane.server.handler import HandlerTable
from ottla.dataplane.server.server import Server
from ottla.dataplane.storage.log_store import LogStore
from ottla.dataplane.transactions.client_commands import ClientOrigins
from ottla.dataplane.transactions.producer_ids import ProducerIds, blocks_from
from ottla.protocol.cluster.cluster_image import ClusterImage, PartitionState, partition_record
from ottla.protocol.cluster.image_delta import ImageDelta
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.broker_commands import AllocateProducerIds, AllocateProducerIdsResult
from ottla.protocol.messages.command import PlainResult
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.headers import decode_response, encode_request
from ottla.protocol.messages.metadata_records import (
    BrokerListener,
    BrokerRecord,
    PartitionRecord,
    TopicRecord,
)
from ottla.protocol.messages.offline_replica_commands import (
    RenewReplicas,
    RenewReplicasResult,
    ReportOfflineReplicas,
)
from ottla.protocol.messages.partition_commands import AlteredPartition, AlterPartition, AlterPartitionResult
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.dataplane.transactions.closed_gate import closed_gate, no_transactional_ids
from tests.node_credentials import credentials

from .harness import TOPIC_ID, batch

LAG_MS = 600


class Quorum:
    """A quorum that keeps the image, applies AlterPartition, and updates every broker at once."""

    def __init__(self) -> None:
        self.image = ClusterImage()
        self.brokers: dict[int, Broker] = {}
        self.producer_ids = 0

    def tell(self, *records: Any) -> None:
        delta = ImageDelta()
        for record in records:
            delta.note(record)
            self.image.apply(record)
        for broker in list(self.brokers.values()):
            broker.replicas.image_changed(self.image, delta)

    def broker_record(self, broker_id: int, epoch: int, port: int, *, fenced: bool = False) -> BrokerRecord:
        listener = BrokerListener(name="BROKER", host="127.0.0.1", port=port, security_protocol="PLAINTEXT")
        return BrokerRecord(broker_id=broker_id, broker_epoch=epoch, listeners=[listener], fenced=fenced)

    @property
    def state(self) -> PartitionState:
        return self.image.topics_by_id[TOPIC_ID].partitions[0]

    def partition(self, **changes: Any) -> PartitionRecord:
        record = partition_record(TOPIC_ID, 0, self.state)
        record.partition_epoch += 1
        for name, value in changes.items():
            setattr(record, name, value)
        return record

    def fence(self, broker_id: int) -> None:
        """Fence a dead broker: another member of the ISR leads, in the same turn."""
        known = self.image.brokers[broker_id]
        isr = [member for member in self.state.isr if member != broker_id]
        changes: dict[str, Any] = {"isr": isr}
        if self.state.leader == broker_id:
            changes |= {"leader": isr[0], "leader_epoch": self.state.leader_epoch + 1}
        port = known.listeners[0].port
        self.tell(
            self.broker_record(broker_id, known.broker_epoch, port, fenced=True), self.partition(**changes)
        )

    def _lose(self, broker_id: int) -> None:
        """Take a replica offline: it leaves the ISR, and another one leads."""
        state = self.state
        isr = [member for member in state.isr if member != broker_id]
        changes: dict[str, Any] = {"isr": isr, "offline_replicas": [broker_id]}
        if state.leader == broker_id:
            changes |= {"leader": isr[0], "leader_epoch": state.leader_epoch + 1}
        self.tell(self.partition(**changes))

    async def submit(self, command: Any) -> Any:
        await asyncio.sleep(0)
        if isinstance(command, AllocateProducerIds):
            self.producer_ids += 1000
            return AllocateProducerIdsResult(first=self.producer_ids - 1000, count=1000)
        if isinstance(command, ReportOfflineReplicas):
            self._lose(command.broker_id)
            return PlainResult()
        if isinstance(command, RenewReplicas):
            offline = [member for member in self.state.offline_replicas if member != command.broker_id]
            epoch = self.state.leader_epoch + 1
            self.tell(self.partition(offline_replicas=offline, leader_epoch=epoch))
            return RenewReplicasResult(renewed=command.partitions)
        assert isinstance(command, AlterPartition)
        results = []
        for change in command.partitions:
            state = self.state
            eligible = all(
                self.image.brokers[member.broker_id].usable
                and member.broker_id not in state.offline_replicas
                and member.broker_epoch in (-1, self.image.brokers[member.broker_id].broker_epoch)
                for member in change.new_isr
            )
            if (change.leader_epoch, change.partition_epoch) != (state.leader_epoch, state.partition_epoch):
                results.append(AlteredPartition(error_code=ErrorCode.INVALID_UPDATE_VERSION))
            elif not eligible:
                results.append(AlteredPartition(error_code=ErrorCode.INELIGIBLE_REPLICA))
            else:
                self.tell(self.partition(isr=[member.broker_id for member in change.new_isr]))
                new = self.state
                results.append(
                    AlteredPartition(
                        isr=list(new.isr),
                        leader=new.leader,
                        leader_epoch=new.leader_epoch,
                        partition_epoch=new.partition_epoch,
                    )
                )
        return AlterPartitionResult(partitions=results)


class Broker:
    """A broker without its quorum session: log, replication, server."""

    def __init__(
        self,
        quorum: Quorum,
        broker_id: int,
        epoch: int,
        directory: Path,
        *,
        durable: bool,
        lag_ms: int = LAG_MS,
    ) -> None:
        self.quorum, self.broker_id, self.broker_epoch = quorum, broker_id, epoch
        self.lost: list[int] = []
        """Ids of disconnected brokers, as reported."""
        self.logs = LogStore.open([directory], "cluster", broker_id, wall_ms)
        settings = TopicSettings(LogConfig(), ReplicationSettings(2, lag_ms, durable))
        self.replicas = Replicas(
            ReplicasConfig(
                credentials(broker_id),
                "BROKER",
                lag_time_max_ms=lag_ms,
                link=LinkSettings(fetch_wait_max_ms=200),
            ),
            self.logs,
            quorum.image,
            lambda topic: settings,
            submit_to(self, broker_id),
            lambda: self.broker_epoch,
            report_to(self, broker_id),
            rebuild_with(self, broker_id),
            self.lost.append,
        )
        table = HandlerTable()
        self.server = Server(table)
        table.add(ProduceHandlers(self.replicas, self.server.purgatory, closed_gate(), self.server.quotas))
        table.add(AuthenticateNodeHandlers(credentials(broker_id)))
        table.add(FetchHandlers(self.replicas, self.server.purgatory, quotas=self.server.quotas))
        table.add(ListOffsetsHandlers(self.replicas))
        table.add(OffsetForLeaderEpochHandlers(self.replicas))
        refusing = no_transactional_ids()
        origins = ClientOrigins(broker_id, refusing, wall_ms)
        ids = ProducerIds(blocks_from(self, broker_id))
        table.add(InitProducerIdHandlers(ids, refusing, origins, lambda: 1))
        self.port = self.server.listen("BROKER", "127.0.0.1", 0).port
        self.server.start()
        self.replicas.start()
        quorum.brokers[broker_id] = self
        quorum.tell(quorum.broker_record(broker_id, epoch, self.port))
        self.replicas.image_changed(quorum.image, ImageDelta.between(ClusterImage(), quorum.image))

    @property
    def image(self) -> ClusterImage:
        return self.quorum.image

    async def submit(self, command: Any, timeout_ms: int | None = None) -> Any:
        return await self.quorum.submit(command)

    @property
    def partition(self) -> Partition:
        return self.replicas.get("t", 0)

    async def stop(self, *, clean: bool = True) -> None:
        self.quorum.brokers.pop(self.broker_id, None)
        self.server.close()
        await self.replicas.close()
        self.logs.close(clean=clean, broker_epoch=self.broker_epoch)


class RawConnection:
    """A connection for raw requests."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._correlation_id = 0

    async def __aenter__(self) -> RawConnection:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    def send(self, message: Any, version: int) -> None:
        self._correlation_id += 1
        self._writer.write(encode_request(message, version, self._correlation_id, "test"))

    async def receive(self, request_class: Any, version: int) -> Any:
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        frame = memoryview(await self._reader.readexactly(size))
        return decode_response(request_class, frame, version)[1]

    async def read_some(self) -> bytes:
        """Return the next data, empty at the end of the connection."""
        return await self._reader.read(1 << 16)

    @property
    def local_address(self) -> tuple[str, int]:
        """Address of this client, as the broker sees it."""
        address: tuple[str, int] = self._writer.get_extra_info("sockname")
        return address

    async def call(self, message: Any, version: int) -> Any:
        self.send(message, version)
        return await asyncio.wait_for(self.receive(type(message), version), 60)

    async def produce(
        self, value: bytes, *, acks: int = -1, version: int = 9, timeout_ms: int = 5000, **kw: Any
    ):
        data = PartitionProduceData(index=0, records=kw.pop("records", None) or batch(value, **kw))
        topic = TopicProduceData(partition_data=[data])
        if version >= 13:
            topic.topic_id = TOPIC_ID
        else:
            topic.name = "t"
        request = ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[topic])
        if acks == 0:
            self.send(request, version)
            return None
        response = await self.call(request, version)
        return response.responses[0].partition_responses[0]

    async def fetch(
        self, offset: int, *, version: int = 12, max_wait_ms: int = 2000, min_bytes: int = 1, **kw: Any
    ):
        part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20, **kw)
        topic = FetchTopic(partitions=[part])
        if version >= 13:
            topic.topic_id = TOPIC_ID
        else:
            topic.topic = "t"
        response = await self.call(
            FetchRequest(max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=1 << 20, topics=[topic]),
            version,
        )
        return response.responses[0].partitions[0]


class BrokersOverSockets:
    def __init__(self, directory: Path, *, durable: bool, lag_ms: int) -> None:
        self.quorum = Quorum()
        self._directory = directory
        self._durable = durable
        self._lag_ms = lag_ms
        self._epochs = iter(range(100, 1000))

    def start(self, broker_id: int) -> Broker:
        directory = self._directory / str(broker_id)
        directory.mkdir(exist_ok=True)
        epoch = next(self._epochs)
        return Broker(self.quorum, broker_id, epoch, directory, durable=self._durable, lag_ms=self._lag_ms)

    def __getitem__(self, broker_id: int) -> Broker:
        return self.quorum.brokers[broker_id]

    def create_topic(self, partitions: int = 1) -> None:
        self.quorum.tell(
            TopicRecord(topic_id=TOPIC_ID, name="t"),
            *(
                PartitionRecord(
                    topic_id=TOPIC_ID, partition=index, replicas=[1, 2, 3], isr=[1, 2, 3], leader=1
                )
                for index in range(partitions)
            ),
        )


@contextlib.asynccontextmanager
async def running(
    directory: Path, *, durable: bool = False, lag_ms: int = LAG_MS, partitions: int = 1
) -> AsyncIterator[BrokersOverSockets]:
    """Run three brokers that replicate one topic, led by broker 1. A follower that lags by `lag_ms` leaves the ISR."""
    cluster = BrokersOverSockets(directory, durable=durable, lag_ms=lag_ms)
    for broker_id in (1, 2, 3):
        cluster.start(broker_id)
    cluster.create_topic(partitions)
    try:
        yield cluster
    finally:
        for broker in list(cluster.quorum.brokers.values()):
            await broker.stop()


async def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for: {what}"
        await asyncio.sleep(0.002)

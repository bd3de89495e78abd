"""A broker's handlers of ShareFetch and ShareAcknowledge over real logs, and members that send requests to them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from ottla.dataplane.coordinated_log.transactional_producer import TransactionalProducer
from ottla.dataplane.handlers.share_acknowledge import ShareAcknowledgeHandlers
from ottla.dataplane.handlers.share_fetch import ShareFetchHandlers
from ottla.dataplane.handlers.sharing.acknowledgements import ShareAcknowledgements
from ottla.dataplane.handlers.sharing.fetches import ShareFetches
from ottla.dataplane.handlers.txn_share_acknowledge import TxnShareAcknowledgeHandlers
from ottla.dataplane.quotas import ClientQuotas, QuotaWindows
from ottla.dataplane.replication.replica.partition import Partition
from ottla.dataplane.runtime.clocks import wall_ms
from ottla.dataplane.server.connection import ClientConnection
from ottla.dataplane.server.handler import HandlerTable
from ottla.dataplane.server.purgatory import Purgatory
from ottla.dataplane.server.router import Router
from ottla.dataplane.share.leader.dependencies import CommitUnknown, LetterTopic, ShareKey, StateChange
from ottla.dataplane.share.leader.group_settings import ShareGroupSettings
from ottla.dataplane.share.leader.led_partition import LedPartition
from ottla.dataplane.share.leader.share_partitions import SHARE_BYTES_MAX, SharePartitions
from ottla.dataplane.share.leader.share_sessions import ShareSessions
from ottla.dataplane.share.state.stored_state import PendingState
from ottla.dataplane.share.states import DurableState, StateBatch
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.headers import decode_response, encode_request
from ottla.protocol.messages.share_fetch import (
    AcknowledgedPartition,
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from ottla.protocol.messages.share_transactions import TxnShareAcknowledgeRequest, TxnShareAcknowledgeResponse
from ottla.protocol.records.record import NewRecord
from tests.dataplane.fetching.consumers import Shelf, Wire

TOPIC, ID = "t", b"t" * 16
GROUP = "g"
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
Range = tuple[int, int, Sequence[int]] | tuple[int, int, Sequence[int], int]
"""First and last offset, types, and the delay in ms of released records."""
Ranges = Sequence[Range]

BROKER_SETTINGS = {
    "group.share.record.lock.duration.ms": 30_000,
    "group.share.min.record.lock.duration.ms": 1,
    "group.share.max.record.lock.duration.ms": 60_000,
    "group.share.delivery.count.limit": 5,
    "group.share.min.delivery.count.limit": 2,
    "group.share.max.delivery.count.limit": 10,
    "group.share.partition.max.record.locks": 2_000,
    "group.share.min.partition.max.record.locks": 1,
    "group.share.max.partition.max.record.locks": 4_000,
}


async def until(condition: Callable[[], object], what: str) -> None:
    """Wait until the condition holds, at most 30 s."""
    deadline = asyncio.get_running_loop().time() + 30
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, f"timeout: {what}"
        await asyncio.sleep(0.002)


@dataclass
class Stored:
    """A durable state in memory, by offset."""

    state_epoch: int = 0
    leader_epoch: int = -1
    start_offset: int = -1
    delivery_complete: int = 0

    def __post_init__(self) -> None:
        self.states: dict[int, tuple[DurableState, int]] = {}
        self.times: dict[int, int] = {}
        """Times before which nobody gets a record."""
        self.open: dict[tuple[int, int], list[StateBatch]] = {}

    @property
    def pending(self) -> list[PendingState]:
        return [PendingState(*producer, tuple(batches)) for producer, batches in self.open.items()]

    def end(self, producer: tuple[int, int], *, committed: bool) -> None:
        """End a producer's transaction, as its marker does."""
        for batch in self.open.pop(producer, ()):
            if committed:
                self.put(batch)

    def copy(self) -> Stored:
        """Return the state at this moment."""
        copied = Stored(self.state_epoch, self.leader_epoch, self.start_offset, self.delivery_complete)
        copied.states, copied.times = dict(self.states), dict(self.times)
        copied.open = {producer: list(batches) for producer, batches in self.open.items()}
        return copied

    def put(self, batch: StateBatch) -> None:
        for offset in range(batch.first, batch.last + 1):
            self.states[offset] = batch.state, batch.delivery_count
            self.times[offset] = batch.not_before_ms

    @property
    def batches(self) -> list[StateBatch]:
        return [
            StateBatch(offset, offset, state, count, self.times.get(offset, 0))
            for offset, (state, count) in sorted(self.states.items())
            if offset >= self.start_offset
        ]


class MemoryPersister:
    """Durable states in memory. Tests make it refuse requests, hold them back, or lose its answers."""

    def __init__(self) -> None:
        self.states: dict[tuple[str, bytes, int], Stored] = {}
        self.writes: list[tuple[int, tuple[StateBatch, ...]]] = []
        self.reads = 0
        self.ended: set[TransactionalProducer] = set()
        """Transactions that have ended."""
        self.refusals: list[ErrorCode] = []
        """Errors of the next requests."""
        self.lost: list[ErrorCode] = []
        """Errors of the next writes, which are applied nevertheless."""
        self._open = asyncio.Event()
        self._open.set()
        self.held = 0

    def hold(self) -> None:
        """Hold back all requests until `go_on`."""
        self._open.clear()

    def go_on(self) -> None:
        self._open.set()

    def state(self, group: str = GROUP, topic_id: bytes = ID, partition: int = 0) -> Stored:
        return self.states.setdefault((group, topic_id, partition), Stored())

    async def _arrive(self) -> None:
        self.held += 1
        await self._open.wait()
        self.held -= 1
        if self.refusals:
            raise KafkaError(self.refusals.pop(0), "refused by the test")

    async def read(self, group_id: str, topic_id: bytes, partition: int, leader_epoch: int) -> Stored:
        self.reads += 1
        await self._arrive()
        state = self.state(group_id, topic_id, partition)
        if leader_epoch < state.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        state.leader_epoch = leader_epoch
        return state.copy()

    async def write(
        self,
        group_id: str,
        topic_id: bytes,
        partition: int,
        *,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        delivery_complete: int,
        batches: Sequence[StateBatch],
    ) -> None:
        await self._arrive()
        state = self.state(group_id, topic_id, partition)
        if state_epoch < state.state_epoch:
            raise KafkaError(ErrorCode.FENCED_STATE_EPOCH)
        if leader_epoch < state.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        self.writes.append((start_offset, tuple(batches)))
        if start_offset >= 0:
            state.start_offset, state.delivery_complete = start_offset, delivery_complete
        for batch in batches:
            state.put(batch)
        if self.lost:
            raise KafkaError(self.lost.pop(0), "the answer is lost")

    async def write_in_transaction(
        self,
        group_id: str,
        topic_id: bytes,
        partition: int,
        *,
        state_epoch: int,
        leader_epoch: int,
        batches: Sequence[StateBatch],
        writer: TransactionalProducer,
    ) -> None:
        await self._arrive()
        state = self.state(group_id, topic_id, partition)
        if leader_epoch < state.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        if writer in self.ended:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)
        state.open.setdefault(writer[1:], []).extend(batches)
        if self.lost:
            raise KafkaError(self.lost.pop(0), "the answer is lost")

    async def has_ended(self, writer: TransactionalProducer) -> bool:
        """Return whether a transaction is over for the quorum."""
        await asyncio.sleep(0)
        return writer in self.ended

    def end(self, writer: TransactionalProducer, *, committed: bool) -> None:
        """End a transaction in all states."""
        self.ended.add(writer)
        for state in self.states.values():
            state.end(writer[1:], committed=committed)


class MemoryOffice:
    """A topic for dead letters in memory, and transactions that change it together with the durable states. Tests make
    it refuse letters, or lose the outcome of a transaction."""

    def __init__(self, persister: MemoryPersister) -> None:
        self._persister = persister
        self.letters: list[NewRecord] = []
        self.refusals: list[KafkaError] = []
        """Errors of the next transactions, which are aborted."""
        self.unknown: list[bool] = []
        """Outcomes of the next transactions, of which the leader does not learn."""
        self.topics = {"dlq.t"}
        self.bytes_max = 1_000_000
        self.settled = 0
        self.attempts = 0

    async def topic(self, name: str, partition: int) -> LetterTopic:
        self.attempts += 1
        if name not in self.topics:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} does not exist")
        return LetterTopic(name, b"d" * 16, partition, self.bytes_max)

    def transactions(self, key: ShareKey) -> MemoryTransactions:
        return MemoryTransactions(self, key)

    async def write(self, key: ShareKey, letters: Sequence[NewRecord], change: StateChange) -> None:
        await self._persister.write(*key, **change._asdict(), start_offset=-1, delivery_complete=-1)
        self.letters += letters


class MemoryTransactions:
    """The transactions of a share partition in memory."""

    def __init__(self, office: MemoryOffice, key: ShareKey) -> None:
        self._office, self._key = office, key

    async def settle(self) -> None:
        self._office.settled += 1

    async def commit(self, topic: LetterTopic, letters: Sequence[NewRecord], change: StateChange) -> None:
        await asyncio.sleep(0)
        if self._office.refusals:
            raise self._office.refusals.pop(0)
        is_unknown = bool(self._office.unknown)
        if not is_unknown or self._office.unknown.pop(0):
            await self._office.write(self._key, letters, change)
        if is_unknown:
            raise CommitUnknown("the answer is lost")


class ShareBroker(Shelf):
    """A broker that serves share groups. It must be made inside a running loop."""

    def __init__(
        self, directory: Path, *, bytes_max: int = SHARE_BYTES_MAX, sessions_max: int = 2_000
    ) -> None:
        super().__init__(directory)
        self.persister = MemoryPersister()
        self.settings = dict(BROKER_SETTINGS)
        self.groups: dict[str, dict[str, str]] = {GROUP: {"share.auto.offset.reset": "earliest"}}
        self.share_version = 2
        self.wall_jump_ms = 0
        """Error of the wall clock, which tests change as an operator does who sets the clock."""
        self.office = MemoryOffice(self.persister)
        loop = asyncio.get_running_loop()
        self.partitions = SharePartitions(
            self.replicas,
            self.persister,
            ShareGroupSettings(
                self.settings.__getitem__,
                lambda group: self.groups.get(group, {}),
                lambda: self.share_version > 1,
            ),
            self.office,
            self.persister.has_ended,
            lambda: wall_ms() + self.wall_jump_ms,
            bytes_max,
        )
        self.replicas.listen(self.partitions)
        self.sessions = ShareSessions(self.partitions, lambda: sessions_max)
        self.quotas = ClientQuotas(QuotaWindows())
        self.fetches = ShareFetches(
            self.partitions,
            self.sessions,
            lambda: self.image,
            lambda: self.share_version,
            Purgatory(loop),
            self.handlers.cold_reads,
            self.quotas,
            55 * 1024 * 1024,
        )
        self.acknowledges = ShareAcknowledgements(
            self.partitions, self.sessions, lambda: self.image, lambda: self.share_version
        )
        self.apis = (
            ShareFetchHandlers(lambda: self.fetches),
            ShareAcknowledgeHandlers(lambda: self.acknowledges),
            TxnShareAcknowledgeHandlers(lambda: self.acknowledges),
        )
        table = HandlerTable(self.handlers, *self.apis)
        self.router = Router(table, loop, self.quotas)

    def set(self, group: str = GROUP, **settings: object) -> None:
        """Set settings of a group; `__` stands for a dot."""
        own = self.groups.setdefault(group, {})
        own.update({name.replace("__", "."): str(value) for name, value in settings.items()})

    def replica(self, name: str = TOPIC, index: int = 0) -> Partition:
        return super().replica(name, index)

    def write(self, count: int, *, batches: int = 1, index: int = 0, value: bytes = b"v") -> None:
        for _ in range(batches):
            self.append(TOPIC, index, value, count=count)

    def led(self, group: str = GROUP, partition: int = 0) -> LedPartition:
        return next(led for led in self.partitions if led.key == (group, ID, partition))

    async def close(self) -> None:
        self.partitions.close()
        await super().close()


class MemberWire(Wire):
    """The part of a member's connection that handlers need."""

    on_expiry: Callable[[], None] | None = None
    session_ended = False

    def hold(self, request: object = None) -> None:
        pass

    def go_on(self, request: object = None) -> None:
        pass


class Member:
    """A member of a share group, on a connection of its own."""

    def __init__(self, broker: ShareBroker, name: str = "m", group: str = GROUP, version: int = 2) -> None:
        self.broker, self.name, self.group, self.version = broker, name, group, version
        self.wire = MemberWire()
        self.epoch = 0

    def send(
        self,
        acknowledged: Ranges = (),
        *,
        partitions: Sequence[int] = (0,),
        forgotten: Sequence[int] = (),
        topic_id: bytes = ID,
        **fields: Any,
    ) -> None:
        """Send a ShareFetch at the next epoch."""
        topics = []
        if self.epoch == 0 or acknowledged or "topics" in fields:
            topics = [
                FetchTopic(
                    topic_id=topic_id,
                    partitions=[
                        FetchPartition(partition_index=index, acknowledgement_batches=_batches(acknowledged))
                        for index in partitions
                    ],
                )
            ]
        values: dict[str, Any] = {
            "group_id": self.group,
            "member_id": self.name,
            "share_session_epoch": self.epoch,
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 500,
            "topics": topics,
        }
        if forgotten:
            values["forgotten_topics_data"] = [ForgottenTopic(topic_id=topic_id, partitions=list(forgotten))]
        self._dispatch(ShareFetchRequest(**(values | fields)))
        if self.epoch >= 0:
            self.epoch += 1

    async def acknowledge_in(
        self, writer: TransactionalProducer, *ranges: Range, **fields: Any
    ) -> TxnShareAcknowledgeResponse:
        """Send a TxnShareAcknowledge at the next epoch, and return its answer."""
        self.send_acknowledgements_in(writer, *ranges, **fields)
        return cast(TxnShareAcknowledgeResponse, await self.answered(TxnShareAcknowledgeRequest, 0))

    def send_acknowledgements_in(self, writer: TransactionalProducer, *ranges: Range, **fields: Any) -> None:
        """Send a TxnShareAcknowledge at the next epoch."""
        partition = AcknowledgePartition(partition_index=0, acknowledgement_batches=_batches(ranges))
        values: dict[str, Any] = {
            "transactional_id": writer.transactional_id,
            "producer_id": writer.producer_id,
            "producer_epoch": writer.producer_epoch,
            "group_id": self.group,
            "member_id": self.name,
            "share_session_epoch": self.epoch,
            "topics": [AcknowledgeTopic(topic_id=ID, partitions=[partition])],
        }
        self._dispatch(TxnShareAcknowledgeRequest(**(values | fields)), 0)
        self.epoch += 1

    def _dispatch(self, message: Any, version: int | None = None) -> None:
        version = self.version if version is None else version
        frame = memoryview(encode_request(message, version, 7, "test"))[4:]
        self.wire.arrived.clear()
        self.broker.router.dispatch(cast(ClientConnection, self.wire), frame)

    async def answered(self, request_class: Any = ShareFetchRequest, version: int | None = None) -> Any:
        """Return the next answer."""
        await until(lambda: self.wire.answers, "an answer")
        version = self.version if version is None else version
        return decode_response(request_class, self.wire.answers.pop(0), version)[1]

    async def fetch(self, acknowledged: Ranges = (), **fields: Any) -> ShareFetchResponse:
        self.send(acknowledged, **fields)
        return cast(ShareFetchResponse, await self.answered())

    async def take(self, **fields: Any) -> list[tuple[int, int, int]]:
        """Return the acquired ranges of a fetch that waits for records if there are none."""
        return acquired(await self.fetch(**({"max_wait_ms": 20_000} | fields)))

    async def acknowledge(
        self,
        *ranges: Range,
        topic_id: bytes = ID,
        partition: int = 0,
        **fields: Any,
    ) -> ShareAcknowledgeResponse:
        """Send a ShareAcknowledge at the next epoch, and return its answer."""
        values: dict[str, Any] = {
            "group_id": self.group,
            "member_id": self.name,
            "share_session_epoch": self.epoch,
            "topics": [
                AcknowledgeTopic(
                    topic_id=topic_id,
                    partitions=[
                        AcknowledgePartition(
                            partition_index=partition, acknowledgement_batches=_batches(ranges)
                        )
                    ],
                )
            ]
            if ranges
            else [],
        }
        self._dispatch(ShareAcknowledgeRequest(**(values | fields)))
        if self.epoch >= 0:
            self.epoch += 1
        return cast(ShareAcknowledgeResponse, await self.answered(ShareAcknowledgeRequest))


def _batches(ranges: Ranges) -> list[AcknowledgementBatch]:
    return [
        AcknowledgementBatch(
            first_offset=found[0],
            last_offset=found[1],
            acknowledge_types=list(found[2]),
            delay_ms=found[3] if len(found) == 4 else 0,
        )
        for found in ranges
    ]


def row(response: ShareFetchResponse, partition: int = 0) -> PartitionData:
    """Return the row of a partition."""
    assert response.error_code == 0, response
    rows = [part for topic in response.responses for part in topic.partitions]
    return next(part for part in rows if part.partition_index == partition)


def acquired(response: ShareFetchResponse, partition: int = 0) -> list[tuple[int, int, int]]:
    """Return the acquired ranges of a partition: first offset, last offset, delivery count."""
    assert response.error_code == 0, response
    rows = [part for topic in response.responses for part in topic.partitions]
    return [
        (found.first_offset, found.last_offset, found.delivery_count)
        for part in rows
        if part.partition_index == partition
        for found in part.acquired_records
    ]


def outcome(
    response: ShareAcknowledgeResponse | TxnShareAcknowledgeResponse, partition: int = 0
) -> AcknowledgedPartition:
    """Return the row of a partition."""
    assert response.error_code == 0, response
    rows = [part for topic in response.responses for part in topic.partitions]
    return next(part for part in rows if part.partition_index == partition)

"""Brokers in the test's event loop that run transactions by the protocol, in version 1 or 2, and misbehave as a script
asks for.

Every value's fate is known at the end: committed, aborted, or left hanging.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.messages.produce import ProduceRequest
from ottla.protocol.messages.producers import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.shared_transactions import (
    BeginTransactionRequest,
    BeginTransactionResponse,
    CommitTransactionRequest,
    CommitTransactionResponse,
    JoinTransactionRequest,
    JoinTransactionResponse,
)
from ottla.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
    EndTxnRequest,
    EndTxnResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.protocol.records.record_batch import BatchHeader
from ottla.protocol.wire.schema import Message, Request
from tests.client.fake_cluster import FakeCluster, Fault


class Trouble(Enum):
    """A fault of one request to a coordinator."""

    NONE = auto()
    DROP_BEFORE = auto()
    """The connection breaks before the request had an effect."""
    DROP_AFTER = auto()
    """The request took effect, and the answer is lost."""
    BUSY = auto()
    """The answer is CONCURRENT_TRANSACTIONS."""
    MOVED = auto()
    """The answer is NOT_COORDINATOR, and another broker coordinates from now on."""
    ABORTABLE = auto()
    """The answer is TRANSACTION_ABORTABLE, if the request permits it."""


@dataclass
class Fate:
    """A value in a log, and its fate."""

    value: bytes
    producer_id: int
    committed: bool | None = None


@dataclass
class Owned:
    """The state of one transactional id."""

    producer_id: int
    epoch: int = 0
    last_epoch: int = -1
    number: int = 0
    is_open: bool = False
    committed: bool = False
    """True if the last transaction was committed."""
    partitions: set[tuple[int, int]] = field(default_factory=set)
    """Written partitions as (producer id, partition)."""
    writers: dict[int, int] = field(default_factory=dict)
    """Epochs of joined writers, by producer id."""
    offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    app_version: int = -1
    was_committed: bool = False


class TransactionalCluster(FakeCluster):
    """A cluster with topic `t`. `trouble` is called before every request to a coordinator."""

    def __init__(self, partitions: int, version: int, fault: Callable[[], Fault]) -> None:
        super().__init__("t", partitions, fault)
        self.version = version
        self.features = {"transaction.version": version}
        self.trouble: Callable[[], Trouble] = lambda: Trouble.NONE
        self.coordinator = 0
        self.fates: list[list[Fate]] = [[] for _ in range(partitions)]
        self.ids: dict[str, Owned] = {}
        self.group_offsets: dict[tuple[str, int], int] = {}
        self.refuse_offsets = ErrorCode.NONE
        self.asked: list[str] = []
        self.held: dict[int, asyncio.Event] = {}
        """Events, by API key, that requests wait for before they are read."""
        self.waiting = 0
        """Number of requests that are held."""
        self.served += [
            FindCoordinatorRequest,
            AddPartitionsToTxnRequest,
            AddOffsetsToTxnRequest,
            EndTxnRequest,
            TxnOffsetCommitRequest,
            BeginTransactionRequest,
            JoinTransactionRequest,
            CommitTransactionRequest,
        ]

    def committed(self, partition: int) -> list[bytes]:
        return [fate.value for fate in self.fates[partition] if fate.committed]

    def hanging(self) -> list[bytes]:
        return [fate.value for fates in self.fates for fate in fates if fate.committed is None]

    def time_out(self, name: str) -> None:
        """Abort the open transaction like a coordinator after its timeout (KIP-890)."""
        owned = self.ids[name]
        owned.epoch, owned.last_epoch = owned.epoch + 1, owned.epoch
        self._settle(owned, set())

    async def before_answer(self, api_key: int) -> None:
        if api_key in self.held:
            self.waiting += 1
            await self.held[api_key].wait()
            self.waiting -= 1

    # what leaders do

    def admits(self, request: ProduceRequest, version: int, index: int, header: BatchHeader) -> ErrorCode:
        assert request.transactional_id is not None
        assert header.is_transactional
        assert (version >= 12) == (self.version >= 2), version
        owned = self.ids[request.transactional_id]
        is_owner = owned.producer_id == header.producer_id
        epoch = owned.epoch if is_owner else owned.writers.get(header.producer_id, 1 << 15)
        if header.producer_epoch != epoch or not (owned.is_open or (is_owner and version >= 12)):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        place = (header.producer_id, index)
        if version >= 12:
            self._open(owned)
            owned.partitions.add(place)
        return ErrorCode.NONE if place in owned.partitions else ErrorCode.INVALID_TXN_STATE

    def appended(self, index: int, header: BatchHeader, values: list[bytes]) -> None:
        self.fates[index] += [Fate(value, header.producer_id) for value in values]

    # what coordinators do

    def answer_other(self, broker: int, request: Request[Message], version: int) -> Message | None:
        self.asked.append(type(request).__name__.removesuffix("Request"))
        if isinstance(request, FindCoordinatorRequest):
            node = self.coordinator if request.key_type == 1 else len(self.ports) - 1
            return FindCoordinatorResponse(node_id=node, host="127.0.0.1", port=self.ports[node])
        trouble = self.trouble()
        if trouble is Trouble.DROP_BEFORE:
            return None
        code = {Trouble.BUSY: ErrorCode.CONCURRENT_TRANSACTIONS}.get(trouble, ErrorCode.NONE)
        elsewhere = isinstance(request, (JoinTransactionRequest, TxnOffsetCommitRequest))
        if (trouble is Trouble.MOVED or broker != self.coordinator) and not elsewhere:
            if broker == self.coordinator:
                self.coordinator = (self.coordinator + 1) % len(self.ports)
            code = ErrorCode.NOT_COORDINATOR
        if trouble is Trouble.ABORTABLE and self._may_be_refused(request):
            code = ErrorCode.TRANSACTION_ABORTABLE
        answer = self._decided(request, version, code)
        return None if trouble is Trouble.DROP_AFTER else answer

    def _may_be_refused(self, request: Any) -> bool:
        """Return whether the request may fail: not if its work is done already, nor if it would repair the state."""
        ends = isinstance(request, (EndTxnRequest, CommitTransactionRequest))
        if ends and (not request.committed or not self.ids[request.transactional_id].is_open):
            return False
        return not isinstance(request, (InitProducerIdRequest, JoinTransactionRequest))

    def _decided(self, request: Any, version: int, code: ErrorCode) -> Message:
        match request:
            case InitProducerIdRequest():
                return self._init(request, code)
            case AddPartitionsToTxnRequest():
                return self._add(request, code)
            case AddOffsetsToTxnRequest():
                code = code or self._checked(
                    request.transactional_id, request.producer_id, request.producer_epoch
                )
                if not code:
                    self._open(self.ids[request.transactional_id])
                return AddOffsetsToTxnResponse(error_code=code)
            case TxnOffsetCommitRequest():
                return self._offsets(request, version, code)
            case EndTxnRequest():
                owned = self.ids[request.transactional_id]
                assert (version >= 5) == (self.version >= 2)
                code = code or self._end(owned, request, bumps=version >= 5, chosen=set())
                return EndTxnResponse(
                    error_code=code, producer_id=owned.producer_id, producer_epoch=owned.epoch
                )
            case BeginTransactionRequest():
                code = code or self._checked(
                    request.transactional_id, request.producer_id, request.producer_epoch
                )
                owned = self.ids[request.transactional_id]
                if not code:
                    self._open(owned)
                token = f"{request.transactional_id}/{owned.number}"
                return BeginTransactionResponse(error_code=code, number=owned.number, token=token)
            case JoinTransactionRequest():
                return self._join(request, code)
            case CommitTransactionRequest():
                return self._commit(request, code)
        raise AssertionError(request)

    def _init(self, request: InitProducerIdRequest, code: ErrorCode) -> InitProducerIdResponse:
        assert request.transactional_id is not None
        if code:
            return InitProducerIdResponse(error_code=code)
        owned = self.ids.get(request.transactional_id)
        if owned is None:
            owned = self.ids[request.transactional_id] = Owned(self.next_producer_id())
        elif owned.is_open:
            owned.epoch, owned.last_epoch = owned.epoch + 1, -1
            self._settle(owned, set())
            return InitProducerIdResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS)
        elif request.producer_id < 0:
            owned.epoch, owned.last_epoch = owned.epoch + 1, -1
        elif request.producer_epoch == owned.epoch:
            owned.epoch, owned.last_epoch = owned.epoch + 1, owned.epoch
        elif request.producer_epoch != owned.last_epoch:
            return InitProducerIdResponse(error_code=ErrorCode.PRODUCER_FENCED)
        return InitProducerIdResponse(
            producer_id=owned.producer_id, producer_epoch=owned.epoch, app_version=owned.app_version
        )

    def _add(self, request: AddPartitionsToTxnRequest, code: ErrorCode) -> AddPartitionsToTxnResponse:
        assert self.version < 2
        producer_id = request.v3_and_below_producer_id
        code = code or self._checked(
            request.v3_and_below_transactional_id, producer_id, request.v3_and_below_producer_epoch
        )
        if not code:
            owned = self.ids[request.v3_and_below_transactional_id]
            self._open(owned)
            owned.partitions |= {
                (producer_id, partition)
                for topic in request.v3_and_below_topics
                for partition in topic.partitions
            }
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=[
                AddPartitionsToTxnTopicResult(
                    name=topic.name,
                    results_by_partition=[
                        AddPartitionsToTxnPartitionResult(
                            partition_index=partition, partition_error_code=code
                        )
                        for partition in topic.partitions
                    ],
                )
                for topic in request.v3_and_below_topics
            ]
        )

    def _offsets(
        self, request: TxnOffsetCommitRequest, version: int, code: ErrorCode
    ) -> TxnOffsetCommitResponse:
        assert (version >= 5) == (self.version >= 2)
        owned = self.ids[request.transactional_id]
        code = code or self.refuse_offsets
        code = code or self._checked(request.transactional_id, request.producer_id, request.producer_epoch)
        if not code and version >= 5:
            self._open(owned)
        if not code and not owned.is_open:
            code = ErrorCode.INVALID_TXN_STATE
        if not code:
            for topic in request.topics:
                for partition in topic.partitions:
                    owned.offsets[topic.name, partition.partition_index] = partition.committed_offset
        return TxnOffsetCommitResponse(
            topics=[
                TxnOffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        TxnOffsetCommitResponsePartition(
                            partition_index=partition.partition_index, error_code=code
                        )
                        for partition in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _join(self, request: JoinTransactionRequest, code: ErrorCode) -> JoinTransactionResponse:
        name, _, number = request.token.partition("/")
        owned = self.ids.get(name)
        if not code and (owned is None or str(owned.number) != number or not owned.is_open):
            code = ErrorCode.INVALID_TXN_STATE
        if code or owned is None:
            return JoinTransactionResponse(error_code=code, error_message="the transaction is over")
        producer_id = self.next_producer_id()
        owned.writers[producer_id] = 0
        return JoinTransactionResponse(
            transactional_id=name, producer_id=producer_id, producer_epoch=0, number=owned.number
        )

    def _commit(self, request: CommitTransactionRequest, code: ErrorCode) -> CommitTransactionResponse:
        owned = self.ids[request.transactional_id]
        chosen = {writer.producer_id for writer in request.writers}
        if not code and owned.is_open and not chosen <= owned.writers.keys():
            code = ErrorCode.INVALID_TXN_STATE
        if not code and owned.is_open:
            owned.was_committed = request.committed and 0 <= request.app_version <= owned.app_version
            owned.app_version = max(owned.app_version, request.app_version)
        code = code or self._end(owned, request, bumps=True, chosen=chosen)
        return CommitTransactionResponse(
            error_code=code,
            producer_id=owned.producer_id,
            producer_epoch=owned.epoch,
            was_committed=owned.was_committed,
            commit_index=owned.number,
        )

    def _checked(self, name: str, producer_id: int, epoch: int) -> ErrorCode:
        owned = self.ids[name]
        return (
            ErrorCode.NONE
            if (producer_id, epoch) == (owned.producer_id, owned.epoch)
            else ErrorCode.PRODUCER_FENCED
        )

    def _open(self, owned: Owned) -> None:
        if not owned.is_open:
            owned.is_open, owned.number = True, owned.number + 1

    def _end(self, owned: Owned, request: Any, *, bumps: bool, chosen: set[int]) -> ErrorCode:
        commits = request.committed and not owned.was_committed
        if not owned.is_open and bumps and request.producer_epoch == owned.last_epoch:
            return ErrorCode.NONE if owned.committed == commits else ErrorCode.PRODUCER_FENCED
        if request.producer_epoch != owned.epoch:
            return ErrorCode.PRODUCER_FENCED
        if not owned.is_open and not bumps:
            repeated = owned.number and owned.committed == commits
            return ErrorCode.NONE if repeated else ErrorCode.INVALID_TXN_STATE
        if bumps:
            owned.epoch, owned.last_epoch = owned.epoch + 1, owned.epoch
        self._settle(owned, {owned.producer_id, *chosen} if commits else set())
        return ErrorCode.NONE

    def _settle(self, owned: Owned, chosen: set[int]) -> None:
        for producer_id, index in owned.partitions:
            for fate in self.fates[index]:
                if fate.producer_id == producer_id and fate.committed is None:
                    fate.committed = producer_id in chosen
        if owned.producer_id in chosen:
            self.group_offsets |= owned.offsets
        owned.is_open, owned.committed = False, owned.producer_id in chosen
        owned.partitions.clear()
        owned.writers.clear()
        owned.offsets.clear()


@asynccontextmanager
async def transactional_cluster(
    version: int,
    *,
    brokers: int = 1,
    partitions: int = 1,
    fault: Callable[[], Fault] = lambda: Fault.NONE,
) -> AsyncIterator[TransactionalCluster]:
    """Run brokers that serve topic `t` until the block ends."""
    cluster = TransactionalCluster(partitions, version, fault)
    await cluster.start(brokers)
    try:
        yield cluster
    finally:
        await cluster.stop()

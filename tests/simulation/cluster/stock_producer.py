"""A hand-written transactional producer that behaves like stock clients below transaction version 2 (librdkafka,
aiokafka).

It adds partitions before it writes to them, keeps its epoch between transactions, waits for all answers before it ends
one, and repeats retriable requests. So a late request does not show on the wire to which transaction it belongs.

Like librdkafka it purges unsent retries when it aborts, and reuses their sequences in its next transaction, under the
same epoch. Like the Java client it begins a new epoch for batches that it has given up, and lowers the sequences of
batches sent after a permanently refused one.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from random import Random
from typing import NamedTuple, TypeVar

from ottla.client.connections.cluster import Cluster
from ottla.client.connections.connection import Connection
from ottla.client.connections.metadata import BrokerAddress
from ottla.client.records import TopicPartition
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from ottla.protocol.messages.producers import InitProducerIdRequest
from ottla.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
)
from ottla.protocol.records.record import encode_batch
from ottla.protocol.wire.schema import Message, Request
from tests.histories.operations import ALL_IN_SYNC, ProducerIdentity, Send, StableEnd, Transaction
from tests.simulation.cluster.workload import Workload

TIMEOUT_MS = 700
IN_DOUBT_AFTER_MS = 1
"""Acknowledgement timeout in milliseconds of a batch that will be purged; followers rarely have it by then."""
GIVEN_UP_AFTER_S = 3.0
"""Seconds after which an unacknowledged batch is given up and its transaction aborted."""
PAUSE_S = 0.03
YEARS_MS = 10 * 365 * 86_400_000
"""Offset of a refused timestamp in the future, in milliseconds."""
FIND_VERSION, INIT_VERSION, ADD_VERSION, END_VERSION, PRODUCE_VERSION = 3, 4, 3, 3, 11
LIST_VERSION = 7
OF_TRANSACTION = 1
LATEST, READ_COMMITTED = -1, 1
ResponseT = TypeVar("ResponseT", bound=Message)


class LateBatch(NamedTuple):
    """A batch that was held up on its way."""

    place: TopicPartition
    value: bytes
    batch: bytes
    transaction: Transaction


class StockProducer:
    """A producer of a transactional id, under one identity after the other."""

    def __init__(
        self, workload: Workload, cluster: Cluster, name: str, transactional_id: str, timeout_ms: int
    ) -> None:
        self.actor = name
        """Name of the current identity."""
        self.producer_id = self.producer_epoch = -1
        self.waiting: list[Send] = []
        """Unanswered sends."""
        self._workload, self._cluster, self._name = workload, cluster, name
        self._transactional_id, self._timeout_ms = transactional_id, timeout_ms
        self._chance: Random = workload.chance()
        self._identities = self._lane = self._sent = self._numbers = 0
        self._sequences: dict[TopicPartition, int] = {}
        self._coordinator: int | None = None
        self._held: tuple[Connection, EndTxnRequest] | None = None

    # ------------------------------------------------------------ identity

    async def initialise(self, *, anew: bool) -> None:
        """Obtain an identity, with retries.

        `anew`: a new identity that replaces the current holder; else the next epoch of its own. Raises KafkaError if it
        was replaced.
        """
        own = not anew and self.producer_id >= 0
        request = InitProducerIdRequest(
            transactional_id=self._transactional_id,
            transaction_timeout_ms=self._timeout_ms,
            producer_id=self.producer_id if own else -1,
            producer_epoch=self.producer_epoch if own else -1,
        )
        while True:
            with suppress(_MayHelp):
                answer = await self._ask(request, INIT_VERSION)
                self._check(answer.error_code)
                break
            await asyncio.sleep(PAUSE_S)
        self._identities += 1
        self.actor = f"{self._name}/{self._identities}"
        self.producer_id, self.producer_epoch = answer.producer_id, answer.producer_epoch
        self._sequences.clear()
        identity = ProducerIdentity(
            self.actor, self.producer_id, self.producer_epoch, self._workload.now(), self._transactional_id
        )
        self._workload.history.add(identity)

    # ------------------------------------------------------------ transactions

    async def add(self, places: list[TopicPartition]) -> None:
        """Add partitions. Raises KafkaError if the transaction is lost."""
        topics: dict[str, list[int]] = {}
        for topic, index in places:
            topics.setdefault(topic, []).append(index)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.producer_epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in topics.items()
            ],
        )
        while True:
            with suppress(_MayHelp):
                answer = await self._ask(request, ADD_VERSION)
                for result in answer.results_by_topic_v3_and_below:
                    for partition_result in result.results_by_partition:
                        self._check(partition_result.partition_error_code)
                return
            await asyncio.sleep(PAUSE_S)

    async def produce(self, place: TopicPartition, count: int, transaction: Transaction) -> None:
        """Send `count` records in one batch until its outcome is known. Raises KafkaError if everything is lost."""
        sends = self._new_sends(place, count, transaction)
        batch = self._encoded(place, [send.value for send in sends])
        begun_s, attempts = self._workload.now(), 0
        while True:
            attempts += 1
            code = await self._attempt(place, batch, sends, tried_before=attempts > 1)
            if code is ErrorCode.NONE:
                self._sequences[place] = self._sequences.get(place, 0) + count
                return
            if not code.retriable or self._workload.now() > begun_s + GIVEN_UP_AFTER_S:
                raise KafkaError(code)
            await asyncio.sleep(PAUSE_S)
            with suppress(KafkaError):
                await self._cluster.refresh()

    async def produce_and_purge(self, place: TopicPartition, count: int, transaction: Transaction) -> None:
        """Send `count` records once, and purge them unless they are acknowledged, so that the next records reuse their
        sequence.

        Raises KafkaError without an answer, or after a non-retriable error.
        """
        sends = self._new_sends(place, count, transaction)
        batch = self._encoded(place, [send.value for send in sends])
        try:
            response = await self._asked(place, batch, IN_DOUBT_AFTER_MS)
        except KafkaError as error:
            self._note(sends, error.code, -1, tried_before=False)
            raise
        code = ErrorCode(response.error_code)
        self._note(sends, code, response.base_offset, tried_before=False)
        if code is ErrorCode.NONE:
            self._sequences[place] = self._sequences.get(place, 0) + count
        elif not code.retriable:
            raise KafkaError(code)

    async def produce_behind_refused(
        self, place: TopicPartition, count: int, transaction: Transaction
    ) -> None:
        """Send an invalid record, and `count` records right after it, which are resent with the refused record's
        sequence.

        Always raises KafkaError, since the transaction must be aborted.
        """
        sequence = self._sequences.get(place, 0)
        refused, behind = self._new_sends(place, 1, transaction), self._new_sends(place, count, transaction)
        first = self._encoded(place, [send.value for send in refused], ahead_ms=YEARS_MS)
        second = self._encoded(place, [send.value for send in behind], sequence=sequence + 1)
        refusal, (code, offset) = await asyncio.gather(
            self._attempt(place, first, refused, tried_before=False), self._outcome(place, second)
        )
        if (refusal, code) == (ErrorCode.INVALID_TIMESTAMP, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
            # This is not their outcome: a process that is killed now may have sent them again.
            lowered, begun_s = self._encoded(place, [send.value for send in behind]), self._workload.now()
            while self._workload.now() < begun_s + GIVEN_UP_AFTER_S:
                code = await self._attempt(place, lowered, behind, tried_before=True)
                if not code.retriable:
                    break
                await asyncio.sleep(PAUSE_S)
                with suppress(KafkaError):
                    await self._cluster.refresh()
        else:
            self._note(behind, code, offset, tried_before=False)
        raise KafkaError(refusal)

    def late_batch(self, place: TopicPartition, transaction: Transaction) -> LateBatch:
        """Return the next batch of a transaction, delayed until the transaction is over."""
        value = self._new_value()
        return LateBatch(place, value, self._encoded(place, [value]), transaction)

    async def deliver(self, late: LateBatch) -> ErrorCode:
        """Deliver the delayed batch once."""
        send = self._sent_now(late.place, late.value, late.transaction)
        return await self._attempt(late.place, late.batch, [send], tried_before=False)

    async def end(self, transaction: Transaction, *, holds: bool) -> None:
        """End the transaction, with retries until its outcome is known or cannot be known.

        `holds`: the first request is held up in transit, and another connection is used meanwhile. Raises KafkaError if
        the producer was replaced.
        """
        request = EndTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            committed=transaction.commits,
        )
        if holds and self._held is None:
            with suppress(KafkaError):
                self._held = (await self._connection(), request)
            self._lane += 1
        attempts = 0
        while True:
            attempts += 1
            try:
                self._check((await self._ask(request, END_VERSION)).error_code)
            except _MayHelp:
                await asyncio.sleep(PAUSE_S)
            except KafkaError as error:
                transaction.finish(self._workload.now(), error.code.name, tried_before=attempts > 1)
                raise
            else:
                transaction.finish(self._workload.now())
                return

    async def look(self, place: TopicPartition) -> None:
        """Note the offset up to which a new read-committed consumer could read; missing answers are ignored."""
        part = ListOffsetsPartition(partition_index=place.partition, timestamp=LATEST)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=READ_COMMITTED,
            topics=[ListOffsetsTopic(name=place.topic, partitions=[part])],
        )
        asked_s, sure = self._workload.now(), self._workload.is_led_by_one(place)
        with suppress(KafkaError):
            leader = self._cluster.metadata.leader(*place)
            if leader is None:
                return
            connection = await self._cluster.connection(leader, "look")
            answer = await connection.request(request, version=LIST_VERSION, timeout_ms=TIMEOUT_MS)
            found = answer.topics[0].partitions[0]
            if not found.error_code and sure and self._workload.is_led_by_one(place):
                end = StableEnd(self.actor, *place, found.offset, asked_s, self._workload.now())
                self._workload.history.add(end)

    def release(self) -> None:
        """Deliver the request that was held up."""
        held, self._held = self._held, None
        if held is not None and held[0].lost is None:
            answer = held[0].send(held[1], version=END_VERSION, timeout_ms=TIMEOUT_MS)
            answer.add_done_callback(lambda done: done.cancelled() or done.exception())

    # ------------------------------------------------------------ requests

    def _new_sends(self, place: TopicPartition, count: int, transaction: Transaction) -> list[Send]:
        return [self._sent_now(place, self._new_value(), transaction) for _ in range(count)]

    def _new_value(self) -> bytes:
        self._sent += 1
        return f"{self.actor}:{self._sent}".encode() + b"." * self._chance.choice((0, 10, 100))

    def _sent_now(self, place: TopicPartition, value: bytes, transaction: Transaction) -> Send:
        self._numbers += 1
        now = self._workload.now()
        send = Send(self._name, transaction.producer, *place, value, ALL_IN_SYNC, True, self._numbers, now)
        send.transaction = transaction.name
        send.key = self._workload.key(place.topic, value)
        self._workload.history.add(send)
        self.waiting = [waiting for waiting in self.waiting if waiting.completed_s is None] + [send]
        return send

    def _encoded(
        self, place: TopicPartition, values: list[bytes], *, sequence: int | None = None, ahead_ms: int = 0
    ) -> bytes:
        """Encode a batch. `sequence` overrides the next one; `ahead_ms` moves its timestamps into the future."""
        timestamp_ms = int(time.time() * 1000) + ahead_ms
        return encode_batch(
            [(self._workload.key(place.topic, value), value, timestamp_ms) for value in values],
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=self._sequences.get(place, 0) if sequence is None else sequence,
            transactional=True,
        )

    async def _attempt(
        self, place: TopicPartition, batch: bytes, sends: list[Send], *, tried_before: bool
    ) -> ErrorCode:
        code, offset = await self._outcome(place, batch)
        self._note(sends, code, offset, tried_before=tried_before)
        return code

    async def _outcome(self, place: TopicPartition, batch: bytes) -> tuple[ErrorCode, int]:
        """Return the outcome of one attempt, and the offset, -1 if unknown."""
        try:
            response = await self._asked(place, batch, TIMEOUT_MS // 2)
        except KafkaError as error:
            return error.code, -1
        code = ErrorCode(response.error_code)
        return ErrorCode.NONE if code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER else code, response.base_offset

    async def _asked(
        self, place: TopicPartition, batch: bytes, acknowledged_within_ms: int
    ) -> PartitionProduceResponse:
        """Attempt once. Raises KafkaError without an answer."""
        data = PartitionProduceData(index=place.partition, records=batch)
        request = ProduceRequest(
            transactional_id=self._transactional_id,
            acks=ALL_IN_SYNC,
            timeout_ms=acknowledged_within_ms,
            topic_data=[TopicProduceData(name=place.topic, partition_data=[data])],
        )
        leader = self._cluster.metadata.leader(*place)
        if leader is None:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE)
        connection = await self._cluster.connection(leader, "produce")
        answer = await connection.request(request, version=PRODUCE_VERSION, timeout_ms=TIMEOUT_MS)
        return answer.responses[0].partition_responses[0]

    def _note(self, sends: list[Send], code: ErrorCode, offset: int, *, tried_before: bool) -> None:
        now = self._workload.now()
        for number, send in enumerate(sends):
            at = offset + number if offset >= 0 else None
            send.finish(now, code.name, offset=at, tried_before=tried_before)

    async def _ask(self, request: Request[ResponseT], version: int) -> ResponseT:
        """Attempt once. Raises _MayHelp if another attempt may help."""
        try:
            connection = await self._connection()
            return await connection.request(request, version=version, timeout_ms=TIMEOUT_MS)
        except KafkaError as error:
            self._coordinator = None
            raise _MayHelp from error

    async def _connection(self) -> Connection:
        if self._coordinator is None:
            find = FindCoordinatorRequest(key=self._transactional_id, key_type=OF_TRANSACTION)
            some = await self._cluster.any_connection()
            found = await some.request(find, version=FIND_VERSION, timeout_ms=TIMEOUT_MS)
            if found.error_code:
                raise KafkaError(ErrorCode(found.error_code))
            self._cluster.metadata.learn_broker(BrokerAddress(found.node_id, found.host, found.port))
            self._coordinator = found.node_id
        return await self._cluster.connection(self._coordinator, f"transactions {self._lane}")

    def _check(self, code: int) -> None:
        """Raise _MayHelp or KafkaError for an error code."""
        if not code:
            return
        error = ErrorCode(code)
        if error in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            self._coordinator = None
        if error.retriable:
            raise _MayHelp
        raise KafkaError(error)


class _MayHelp(Exception):
    """An error after which the request is repeated."""

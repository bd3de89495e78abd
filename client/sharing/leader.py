"""The share session with one leader: requests, their answers, and the locks and acknowledgements of its records.

A session has a single request at a time, over a connection of its own: the broker ends the session with the connection,
and releases its records. The broker keeps records whose acknowledgements are parts of transactions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.share_fetch import (
    AcknowledgedPartition,
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    AcknowledgeType,
    AcquireMode,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from ...protocol.messages.share_transactions import TxnShareAcknowledgeRequest, TxnShareAcknowledgeResponse
from ..connections.cluster import Cluster
from ..connections.connection import Connection
from ..connections.metadata import BrokerAddress
from ..failures import LostLock, TransactionAborted, VersionUnsupported
from .acknowledgements import LOST, NOT_HELD, AcknowledgementQueue, AcknowledgementRange, Answered
from .enlisted import EnlistedQueue, EnlistingTransaction
from .locks import HeldRecord, Locks
from .places import Place, by_topic
from .sessions import MemberSession
from .tasks import Acknowledgement

LANE: Final = "share"
RENEWING_VERSION: Final = 2
"""The version of ShareAcknowledge from which on it renews locks (KIP-1222)."""
NOT_ENABLED: Final = ("not enabled", "share.renew.acknowledge.enable")
"""Parts of the error messages with which brokers of Apache Kafka and of Ottla refuse renewals for the whole group. The
code is that of a lost lock."""
KEEPS_SESSION: Final = frozenset(
    {
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
"""Errors of a TxnShareAcknowledge as a whole that a broker answers before it looks at the session: nothing has
changed."""
UNCHANGED: Final = NOT_HELD | {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
"""Errors of a partition in a TxnShareAcknowledge after which no acknowledgement of it is part of the transaction."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderOptions:
    """Options of share sessions; `ShareConsumer` documents the meaning of each."""

    group_id: str
    acquire_mode: AcquireMode
    min_bytes: int
    max_bytes: int
    request_timeout_ms: int
    retry_backoff_max_ms: int
    check_crcs: bool


class Demand(NamedTuple):
    """The number of records that a fetch may take, and the time for which it may wait for the first one, in ms."""

    records: int
    wait_ms: int


class Fetched(Protocol):
    """A function that takes a partition's part of an answer; the lock of its records began at the latest now."""

    def __call__(self, leader: ShareLeader, place: Place, data: PartitionData) -> None:
        """Take the part of one partition."""


class ShareLeader:
    """The share session of one member with one broker. `fetch`, `acknowledge` and `renew` each make a request, one at a
    time."""

    def __init__(
        self, cluster: Cluster, options: LeaderOptions, member_id: str, broker_id: int, fetched: Fetched
    ) -> None:
        self.broker_id = broker_id
        self.session = MemberSession()
        self.locks = Locks()
        self.acks = AcknowledgementQueue()
        self.renewals = AcknowledgementQueue()
        self.enlisted = EnlistedQueue()
        self.wanted: frozenset[Place] = frozenset()
        """The partitions to take records of."""
        self.task: asyncio.Task[None] | None = None
        """The request that is under way."""
        self.retry_at_s = 0.0
        """The time before which no request is sent, after a failure."""
        self.is_dry = True
        """True if the last fetch brought no records."""
        self._cluster = cluster
        self._options = options
        self._member_id = member_id
        self._fetched = fetched
        self._can_renew = True
        self._connection: Connection | None = None
        self._held: dict[tuple[Place, int], HeldRecord] = {}
        """The records that this member has locked, or whose acknowledgement is not answered, by their first offsets."""
        self._answers: dict[HeldRecord, Acknowledgement] = {}
        self._renewed: dict[HeldRecord, Acknowledgement] = {}

    @property
    def is_idle(self) -> bool:
        """True if the leader owes no answer, and holds no lock for this member."""
        return self.task is None and not self._held

    @property
    def is_settled(self) -> bool:
        """True if all acknowledgements were answered."""
        return self.acks.is_empty and self.enlisted.is_empty

    # records and their acknowledgements

    def hold(self, held: HeldRecord) -> None:
        """Note a record that the member has acquired. An earlier delivery of the record is lost."""
        key = (held.place, held.first)
        if (before := self._held.get(key)) is not None:
            self._lose([before], "it was delivered again")
        self._held[key] = held
        self.locks.acquired(held, asyncio.get_running_loop().time())

    def check_delays(self) -> None:
        """Raise VersionUnsupported if the broker keeps no delays of released records."""
        connection = self._connection
        # Brokers that serve TxnShareAcknowledge know the field of the delay. Others would pass over it.
        if connection is not None and TxnShareAcknowledgeRequest.api_key not in connection.versions:
            raise VersionUnsupported(
                f"{connection.address} keeps no delays of released records, as brokers of Ottla do: release the task "
                "without a delay"
            )

    def acknowledge(self, held: HeldRecord, kind: AcknowledgeType, delay_ms: int = 0) -> Acknowledgement:
        """Note an acknowledgement to send, and return it. Raises LostLock."""
        held.check_lock()
        if kind is AcknowledgeType.RENEW:
            return self._renew(held)
        self.acks.add(held.place, held.first, held.last, kind, delay_ms)
        return self._settled(held)

    def acknowledge_in(
        self, transaction: EnlistingTransaction, held: HeldRecord, kind: AcknowledgeType
    ) -> Acknowledgement:
        """Note an acknowledgement to send as a part of a transaction, and return it. Raises LostLock, and
        VersionUnsupported if the broker has no such acknowledgements."""
        held.check_lock()
        assert self._connection is not None  # The record came over it.
        self._connection.version_for(TxnShareAcknowledgeRequest)
        self.enlisted.add(transaction, held, kind)
        return self._settled(held)

    def withdraw(self, transaction: EnlistingTransaction) -> None:
        """Release the records whose acknowledgements were to become part of a transaction that is over."""
        for held in self.enlisted.withdraw(transaction):
            self._give_back(
                held, TransactionAborted("the transaction was over before the acknowledgement was sent")
            )

    def _settled(self, held: HeldRecord) -> Acknowledgement:
        held.is_settled = True
        self.locks.drop(held)
        self.renewals.discard(held.place, held.first)
        answer = self._answers[held] = Acknowledgement()
        return answer

    def pass_gap(self, place: Place, first: int, last: int) -> None:
        """Acknowledge acquired offsets that have no record."""
        self.acks.add(place, first, last, AcknowledgeType.GAP)

    def watch_locks(self, now_s: float) -> None:
        """Ask for the due renewals, and give up the records whose locks have ended."""
        self._lose(self.locks.ended(now_s), "the lock ended before an acknowledgement or a renewal")
        due = self.locks.to_renew(now_s)
        if self._can_renew:
            for held in due:
                self.renewals.add(held.place, held.first, held.last, AcknowledgeType.RENEW)

    def _renew(self, held: HeldRecord) -> Acknowledgement:
        if (answer := self._renewed.get(held)) is None:
            answer = self._renewed[held] = Acknowledgement()
            if self._can_renew:
                self.renewals.add(held.place, held.first, held.last, AcknowledgeType.RENEW)
            else:
                self._refuse_renewals([held])
        return answer

    # requests

    async def fetch(self, demand: Demand) -> None:
        """Take records, and send the waiting acknowledgements with the request. Raises KafkaError."""
        connection = await self._connect()
        turn = self.session.fetch(self.wanted)
        sent = self.acks.take() if self.session.is_open else {}
        added = {
            place: sent.get(place, []) for place in [*turn.added, *(p for p in sent if p in self.wanted)]
        }
        left_over = [place for place in sent if place not in self.wanted]
        added |= {place: sent[place] for place in left_over}
        request = ShareFetchRequest(
            group_id=self._options.group_id,
            member_id=self._member_id,
            share_session_epoch=turn.epoch,
            max_wait_ms=demand.wait_ms,
            min_bytes=self._options.min_bytes,
            max_bytes=self._options.max_bytes,
            max_records=demand.records,
            batch_size=demand.records,
            share_acquire_mode=self._options.acquire_mode,
            is_renew_ack=False,
            topics=_fetch_topics(added),
            forgotten_topics_data=[
                ForgottenTopic(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in by_topic({*turn.forgotten, *left_over}).items()
            ],
        )
        timeout_ms = self._options.request_timeout_ms + demand.wait_ms
        response = await connection.request(request, timeout_ms=timeout_ms)
        self._check(response.error_code, response.error_message)
        self.session.answered()
        self._take_fetched(response)
        self._unanswered(self.acks)

    async def acknowledge_waiting(self) -> None:
        """Send the waiting acknowledgements without a fetch. Raises KafkaError."""
        connection = await self._connect()
        if not self.session.is_open:
            return  # The session has ended with its connection.
        response = await self._send(connection, self.acks.take(), is_renew=False)
        for place, answer in _answers(response):
            self._settle(place, ErrorCode.of(answer.error_code), answer.error_message)
            self._learn(place, answer.current_leader)
        self._unanswered(self.acks)

    async def renew(self) -> None:
        """Renew the locks that are due. Raises KafkaError."""
        connection = await self._connect()
        if not self.session.is_open:
            return  # The session has ended with its connection.
        ranges = self.renewals.take()
        if connection.version_for(ShareAcknowledgeRequest) < RENEWING_VERSION:
            self._stop_renewing("the broker cannot renew locks (ShareAcknowledge 2)")
            return
        response = await self._send(connection, ranges, is_renew=True)
        if response.acquisition_lock_timeout_ms > 0:
            self.locks.duration_s = response.acquisition_lock_timeout_ms / 1000
        for place, answer in _answers(response):
            if answer.error_code and any(part in (answer.error_message or "") for part in NOT_ENABLED):
                self._stop_renewing("share.renew.acknowledge.enable is false for the group")
                return
            self._settle_renewals(place, ErrorCode.of(answer.error_code), answer.error_message)
        self._unanswered(self.renewals)

    async def acknowledge_enlisted(self) -> None:
        """Send the waiting acknowledgements of a transaction. Raises KafkaError."""
        connection = await self._connect()
        if not self.session.is_open:
            return  # The session has ended with its connection.
        transaction, ranges = self.enlisted.take()
        request = TxnShareAcknowledgeRequest(
            transactional_id=transaction.transactional_id,
            producer_id=transaction.producer.id,
            producer_epoch=transaction.producer.epoch,
            group_id=self._options.group_id,
            member_id=self._member_id,
            share_session_epoch=self.session.acknowledge(),
            topics=_acknowledged_topics(ranges),
        )
        response = await connection.request(request, timeout_ms=self._options.request_timeout_ms)
        if (code := ErrorCode.of(response.error_code)) in KEEPS_SESSION:
            where = f"acknowledgements in the transaction of {transaction.transactional_id!r}"
            for held in self.enlisted.unanswered():
                self._give_back(held, self._refusal(code, where, response.error_message, transaction))
            return
        self._check(response.error_code, response.error_message)
        self.session.answered()
        self._learn_brokers(response.node_endpoints)
        for place, answer in _answers(response):
            self._settle_enlisted(place, ErrorCode.of(answer.error_code), answer.error_message)
            self._learn(place, answer.current_leader)
        for held in self.enlisted.unanswered():
            where = f"acknowledgement of offset {held.first}"
            self._finish(held.place, held.first, self._cluster.failure(ErrorCode.UNKNOWN_SERVER_ERROR, where))

    async def close(self) -> None:
        """Close the session, by which the broker releases its records. Raises KafkaError."""
        if self.session.is_open:
            request = ShareAcknowledgeRequest(
                group_id=self._options.group_id,
                member_id=self._member_id,
                share_session_epoch=self.session.close(),
                is_renew_ack=False,
                topics=[],
            )
            try:
                connection = await self._connect()
                await connection.request(request, timeout_ms=self._options.request_timeout_ms)
            finally:
                self.end("the consumer gave its session up")

    def end(self, why: str) -> None:
        """Note that there is no session any more: its locks are lost, and acknowledgements fail with LostLock."""
        self.session.ended()
        self.acks.clear()
        self.renewals.clear()
        self.enlisted.clear()
        self._can_renew, self.is_dry = True, True
        self._lose(list(self._held.values()), why)

    async def _connect(self) -> Connection:
        """Return the connection of the session. A new connection has no session."""
        connection = await self._cluster.connection(self.broker_id, LANE)
        if connection is not self._connection:
            if self._connection is not None:
                self.end("the connection to its leader broke")
            self._connection = connection
        return connection

    async def _send(
        self, connection: Connection, ranges: Mapping[Place, list[AcknowledgementRange]], *, is_renew: bool
    ) -> ShareAcknowledgeResponse:
        request = ShareAcknowledgeRequest(
            group_id=self._options.group_id,
            member_id=self._member_id,
            share_session_epoch=self.session.acknowledge(),
            is_renew_ack=is_renew,
            topics=_acknowledged_topics(ranges),
        )
        response = await connection.request(request, timeout_ms=self._options.request_timeout_ms)
        self._check(response.error_code, response.error_message)
        self.session.answered()
        self._learn_brokers(response.node_endpoints)
        return response

    def _check(self, code: int, message: str | None) -> None:
        if code:
            error, group = ErrorCode.of(code), self._options.group_id
            raise self._cluster.failure(
                error, f"share group {group!r}", message, operation="READ", name=group
            )

    # answers

    def _take_fetched(self, response: ShareFetchResponse) -> None:
        self._learn_brokers(response.node_endpoints)
        if response.acquisition_lock_timeout_ms > 0:
            self.locks.duration_s = response.acquisition_lock_timeout_ms / 1000
        self.is_dry = True
        for topic in response.responses:
            for data in topic.partitions:
                place = Place(bytes(topic.topic_id), data.partition_index)
                self._settle(place, ErrorCode.of(data.acknowledge_error_code), data.acknowledge_error_message)
                self._learn(place, data.current_leader)
                if data.acquired_records:
                    self.is_dry = False
                self._fetched(self, place, data)

    def _learn_brokers(self, endpoints: Iterable[NodeEndpoint]) -> None:
        for named in endpoints:
            address = BrokerAddress(named.node_id, named.host, named.port, named.rack)
            self._cluster.metadata.learn_broker(address)

    def _learn(self, place: Place, named: LeaderIdAndEpoch) -> None:
        if named.leader_id >= 0:
            for topic in self._cluster.metadata.topics.values():
                if topic.id == place.topic_id:
                    self._cluster.metadata.learn_leader(
                        topic.name, place.partition, named.leader_id, named.leader_epoch
                    )

    def _settle(self, place: Place, code: ErrorCode, message: str | None) -> None:
        answered = self.acks.answered(place, code)
        for first in answered.done:
            self._finish(place, first, None)
        self._pause_after(answered)
        lost = [self._held[place, first] for first in answered.lost if (place, first) in self._held]
        self._lose(lost, message or code.message)
        for first in answered.refused:
            where = f"acknowledgement of offset {first}"
            self._finish(place, first, self._cluster.failure(code, where, message, operation="READ"))

    def _settle_enlisted(self, place: Place, code: ErrorCode, message: str | None) -> None:
        """Note the answer for one partition of a request of a transaction. After an error that may have changed
        something, the broker releases the records with the end of the transaction."""
        records, text = self.enlisted.answered(place), message or code.message
        if code in LOST:
            self._lose(records, text)
            return
        for held in records:
            if code is ErrorCode.INVALID_RECORD_STATE:
                self._give_back(held, LostLock(f"the lock of a record of the transaction is lost: {text}"))
                continue
            where = f"acknowledgement of offset {held.first}"
            error = self._cluster.failure(code, where, message, operation="READ") if code else None
            if code in UNCHANGED:
                self._give_back(held, error)
            else:
                self._finish(place, held.first, error)

    def _refusal(
        self, code: ErrorCode, where: str, message: str | None, transaction: EnlistingTransaction
    ) -> KafkaError:
        if code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            name = transaction.transactional_id
            return self._cluster.failure(code, where, message, operation="WRITE", name=name)
        return self._cluster.failure(code, where, message, operation="READ", name=self._options.group_id)

    def _give_back(self, held: HeldRecord, error: KafkaError | None) -> None:
        """Fail the acknowledgement of a record that this member has locked still, and release the record."""
        if (answer := self._answers.pop(held, None)) is not None:
            answer.settle(error)
        self.acks.add(held.place, held.first, held.last, AcknowledgeType.RELEASE)

    def _settle_renewals(self, place: Place, code: ErrorCode, message: str | None) -> None:
        answered = self.renewals.answered(place, code)
        now_s = asyncio.get_running_loop().time()
        for first in answered.done:
            held = self._held.get((place, first))
            if held is None or held not in self.locks:
                continue
            self.locks.acquired(held, now_s)
            if (answer := self._renewed.pop(held, None)) is not None:
                answer.settle()
        self._pause_after(answered)
        lost = [self._held[place, first] for first in answered.lost if (place, first) in self._held]
        self._lose([held for held in lost if held in self.locks], message or code.message)
        for first in answered.refused:
            held = self._held.get((place, first))
            if held is not None and (answer := self._renewed.pop(held, None)) is not None:
                where = f"renewal of offset {first}"
                answer.settle(self._cluster.failure(code, where, message, operation="READ"))

    def _unanswered(self, queue: AcknowledgementQueue) -> None:
        """Send acknowledgements again that an answer leaves out."""
        for place in queue.sent:
            self._pause_after(queue.answered(place, ErrorCode.UNKNOWN_SERVER_ERROR))

    def _pause_after(self, answered: Answered) -> None:
        if answered.again:
            pause_s = self._options.retry_backoff_max_ms / 1000
            self.retry_at_s = asyncio.get_running_loop().time() + pause_s

    def _finish(self, place: Place, first: int, error: KafkaError | None) -> None:
        held = self._held.pop((place, first), None)
        if held is None:
            return
        if (renewed := self._renewed.pop(held, None)) is not None:
            renewed.settle()
        if (answer := self._answers.pop(held, None)) is not None:
            answer.settle(error)

    def _lose(self, records: Iterable[HeldRecord], why: str) -> None:
        open_tasks = acknowledged = 0
        for held in records:
            held.is_lost, held.reason = True, why
            self.locks.drop(held)
            self.renewals.discard(held.place, held.first)
            self.acks.discard(held.place, held.first)
            self.enlisted.discard(held)
            self._held.pop((held.place, held.first), None)
            acknowledged += held in self._answers
            open_tasks += not held.is_settled
            for answers in (self._answers, self._renewed):
                if (answer := answers.pop(held, None)) is not None:
                    answer.settle(LostLock(f"the lock of the record at offset {held.first} is lost: {why}"))
        if acknowledged or open_tasks:
            logger.warning(
                "share group %r: %d locks are lost, and %d acknowledgements did not count; the records are delivered "
                "again: %s",
                self._options.group_id,
                open_tasks,
                acknowledged,
                why,
            )

    def _stop_renewing(self, why: str) -> None:
        self._can_renew = False
        self.renewals.clear()
        logger.warning(
            "share group %r: locks end %g s after delivery, as %s",
            self._options.group_id,
            self.locks.duration_s,
            why,
        )
        self._refuse_renewals(list(self._renewed))

    def _refuse_renewals(self, records: Iterable[HeldRecord]) -> None:
        for held in records:
            refused = VersionUnsupported("the group's locks cannot be renewed")
            self._renewed.pop(held).settle(refused)


def _answers(
    response: ShareAcknowledgeResponse | TxnShareAcknowledgeResponse,
) -> list[tuple[Place, AcknowledgedPartition]]:
    return [
        (Place(bytes(topic.topic_id), answer.partition_index), answer)
        for topic in response.responses
        for answer in topic.partitions
    ]


def _batches(ranges: Iterable[AcknowledgementRange]) -> list[AcknowledgementBatch]:
    return [
        AcknowledgementBatch(
            first_offset=first, last_offset=last, acknowledge_types=[int(kind)], delay_ms=delay_ms
        )
        for first, last, kind, delay_ms in ranges
    ]


def _fetch_topics(ranges: Mapping[Place, list[AcknowledgementRange]]) -> list[FetchTopic]:
    topics: dict[bytes, FetchTopic] = {}
    for place, some in ranges.items():
        topic = topics.setdefault(place.topic_id, FetchTopic(topic_id=place.topic_id, partitions=[]))
        topic.partitions.append(
            FetchPartition(partition_index=place.partition, acknowledgement_batches=_batches(some))
        )
    return list(topics.values())


def _acknowledged_topics(ranges: Mapping[Place, list[AcknowledgementRange]]) -> list[AcknowledgeTopic]:
    topics: dict[bytes, AcknowledgeTopic] = {}
    for place, some in ranges.items():
        topic = topics.setdefault(place.topic_id, AcknowledgeTopic(topic_id=place.topic_id, partitions=[]))
        topic.partitions.append(
            AcknowledgePartition(partition_index=place.partition, acknowledgement_batches=_batches(some))
        )
    return list(topics.values())

"""The sender of queued batches: requests to leaders, their answers, and retries.

It is event-driven: a record, an answer, fresh metadata or a timer wakes `_pump`, which sends all batches that may be
sent. No partition waits for another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from math import inf

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
)
from ...protocol.records.record import EncodedRecords
from ..connections.cluster import Cluster
from ..connections.connection import Connection
from ..connections.metadata import BrokerAddress
from ..failures import (
    ClientClosed,
    ClientError,
    ConnectionLost,
    ProducerFenced,
    RequestTimedOut,
    TransactionAborted,
)
from .accumulator import PartitionQueue, ProducerBatch, ProducerIdentity
from .appending import Appender
from .batch_limit import BatchLimit
from .busy_poll import BusyPoll
from .deliveries import BatchResult, RecordDelivery
from .departures import Departures
from .idempotence import SEQUENCE_LOST, Idempotence
from .in_flight import InFlight
from .leaders import LEADER_MOVED, Leaders
from .pending import PendingRecord
from .requests import produce_request, produce_version
from .sender_options import SenderOptions
from .transaction_state import TransactionState

TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
"""Answers that mean: a smaller batch may be accepted. The topic's `max.message.bytes` or `segment.bytes` is lower."""

BEHIND_ATTEMPTS = 20
"""Number of attempts, over some 0.2 s, for a broker that has not learned of its own leadership yet. Then the leader is
looked up elsewhere: the broker may be cut off, and replaced."""

_TORN = (
    "the record may have been appended: its batch was sent and not acknowledged, then refused for its size; sent again "
    "in parts it does not continue the producer's sequence"
)


_Batch = ProducerBatch[BatchResult]
_Queue = PartitionQueue[BatchResult]
_Sent = list[tuple[_Queue, _Batch]]


class _Answer:
    """A receiver of the answer to a Produce request. The sender processes the answer in the same turn of the loop that
    reads it."""

    __slots__ = ("_sender", "connection", "sent")

    def __init__(self, sender: Sender, connection: Connection, sent: _Sent) -> None:
        self._sender = sender
        self.connection = connection
        self.sent = sent

    def done(self) -> bool:
        return False

    def set_result(self, result: object) -> None:
        assert isinstance(result, ProduceResponse)
        self._sender._answered(self, result)

    def set_exception(self, exception: KafkaError) -> None:
        self._sender._unanswered(self, exception)

    def exception(self) -> None:
        return None


class Sender:
    """The sending half of a producer: it sends queued batches to the leaders, and handles answers and retries."""

    def __init__(
        self,
        cluster: Cluster,
        options: SenderOptions,
        appender: Appender[RecordDelivery],
        transaction: TransactionState | None = None,
    ) -> None:
        """With a `transaction`, all records are written in it, under the identity that `use_identity` sets."""
        self.on_acknowledged: Callable[[str, Sequence[PendingRecord], int], None] | None = None
        """A callback for each acknowledged batch, with its topic, its records, and the broker's timestamp for them, or
        -1 if they keep their own."""
        self._cluster = cluster
        self._appender = appender
        self._options = options
        self._transaction = transaction
        self._queues: dict[tuple[str, int], _Queue] = {}
        self._limits: dict[str, BatchLimit] = {}
        self._active: dict[_Queue, None] = {}  # queues with waiting batches, in the order of their turns
        self._leaders = Leaders(
            cluster, self._active, options.retry_backoff_max_ms, self._spawn, self.wake, self._refused
        )
        self._in_flight = InFlight(cluster, self._leaders, self._spawn)
        self._departures = Departures(self._active, self._leaders, self._in_flight, options, transaction)
        self._busy_poll = BusyPoll(options.busy_poll_s)
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._idempotence = Idempotence(
            cluster, self._active, options.retry_backoff_max_ms, self._spawn, self.wake, self._give_up
        )
        self._expires_s = 0.0
        """Loop time before which no waiting batch can expire."""
        self._flushing = 0
        self._woken = False
        self._timer: asyncio.TimerHandle | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._closed = False
        self._closed_with: KafkaError | None = None
        cluster.users.append(self.forget_idle)

    # for the producer

    @property
    def in_transactions(self) -> bool:
        """True if all records must be part of a transaction."""
        return self._transaction is not None

    def add(self, topic: str, partition: int, record: PendingRecord, size: int) -> tuple[_Batch, int, bool]:
        """Queue a record. Returns its batch, its index in the batch, and whether an older batch was full."""
        loop = asyncio.get_running_loop()
        queue = self._queue(topic, partition)
        batch, place, filled = queue.append(record, size, loop.time())
        self._queued(queue, size, in_a_hurry=filled)
        return batch, place, filled

    def add_encoded(self, topic: str, partition: int, records: EncodedRecords, size: int) -> _Batch:
        """Queue a whole batch that was encoded before; `size` is as for `add`."""
        queue = self._queue(topic, partition)
        batch = queue.append_encoded(records, size, asyncio.get_running_loop().time())
        self._queued(queue, size, in_a_hurry=True)
        return batch

    def batch_bytes(self, topic: str) -> int:
        """Return the current limit for a batch of this topic, in estimated bytes before compression."""
        return self._limit(topic).for_new_batch(asyncio.get_running_loop().time())

    async def room(self) -> None:
        """Wait until any batch is acknowledged or has failed, so that room in the buffer may be free."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self.wake()
        await waiter

    async def flush(self) -> None:
        """Wait until every record queued so far is acknowledged or failed; batches do not linger meanwhile."""
        marks = [(queue, queue.next_order) for queue in self._queues.values()]
        self._flushing += 1
        try:
            while not self._closed and any(not queue.resolved_below(order) for queue, order in marks):
                await self.room()
        finally:
            self._flushing -= 1

    def use_identity(self, identity: ProducerIdentity) -> None:
        """Write under this producer id and epoch from now on. No batch may be in flight under another."""
        self._idempotence.identity = identity
        self.wake()

    def abandon(self, error: KafkaError) -> bool:
        """Fail all batches that are not acknowledged with `error`. Returns whether a leader may have appended some of
        them.

        An open transaction fails, too, so a commit need not look at each of its records.
        """
        doubtful = False
        for queue in self._queues.values():
            for batch in queue.drain():
                doubtful |= batch.numbered
                if self._transaction is not None:
                    self._transaction.record_abandoned(error)
                self._settle(batch, error)
        return doubtful

    def fail_transaction(self, error: KafkaError) -> None:
        """Fail the transaction because of a record that it should contain. Without the record it cannot be committed,
        so all other records fail at once, too."""
        if self._transaction is not None:
            self._transaction.record_failed(error)
            self.abandon(
                error
                if isinstance(error, ProducerFenced)
                else TransactionAborted(f"another record of the transaction failed: {error}")
            )

    def forget_idle(self, since_s: float) -> set[str]:
        """Drop the state of topics without a record since `since_s` (loop time). Returns the topics still in use."""
        queues = self._queues.values()
        in_use = {queue.topic for queue in queues if queue.used_s > since_s or not queue.empty}
        idle = [queue for queue in queues if queue.topic not in in_use and self._may_forget(queue)]
        for queue in idle:
            del self._queues[queue.topic, queue.partition]
            self._active.pop(queue, None)
            self._leaders.forget(queue)
            if self._transaction is None:
                # A queue that is created for the partition later does not know the numbers used under this identity.
                self._idempotence.give_up(queue.identity)
        if idle:
            self._appender.clear()
            kept = {queue.topic for queue in self._queues.values()}
            self._limits = {topic: limit for topic, limit in self._limits.items() if topic in kept}
        self._leaders.forget_brokers(self._cluster.metadata.brokers)
        return in_use

    def check_open(self) -> None:
        """Raise the KafkaError that the sender was closed with, if any."""
        if self._closed_with is not None:
            raise self._closed_with

    def close(self, error: KafkaError | None = None) -> None:
        """Stop now. Unacknowledged records fail with `error`, or ClientClosed if none is given."""
        self._closed = True
        self._closed_with = error
        with suppress(ValueError):  # closed before
            self._cluster.users.remove(self.forget_idle)
        self._appender.clear()
        self._leaders.close()
        self._in_flight.close()
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        self.abandon(error or ClientClosed("the producer was closed before the record was acknowledged"))

    def hurry(self) -> None:
        """Send at once, since a caller waits for a record.

        While a request is in flight this does nothing, so that records of many waiting callers are sent together.
        """
        if self._woken and self._in_flight.none:
            self._pump()
            if not self._in_flight.none:
                self._busy_poll.begin()

    def wake(self) -> None:
        """Wake the sender, which looks for batches to send in this turn of the loop."""
        if not self._woken and not self._closed:
            self._woken = True
            asyncio.get_running_loop().call_soon(self._pump_if_woken)

    # sending

    def _queue(self, topic: str, partition: int) -> _Queue:
        queue = self._queues.get((topic, partition))
        if queue is None:
            result = partial(BatchResult, asyncio.get_running_loop())
            queue = PartitionQueue(topic, partition, self._limit(topic), result)
            self._queues[topic, partition] = queue
        return queue

    def _may_forget(self, queue: _Queue) -> bool:
        """Return whether the queue's sequence numbers are no longer needed. In a transaction only its coordinator gives
        a new identity."""
        return self._transaction is None or queue.identity != self._idempotence.identity

    def _limit(self, topic: str) -> BatchLimit:
        limit = self._limits.get(topic)
        if limit is None:
            limit = self._limits[topic] = BatchLimit(self._options.batch_bytes)
        return limit

    def _queued(self, queue: _Queue, size: int, *, in_a_hurry: bool) -> None:
        self._appender.count(size)
        if in_a_hurry or queue not in self._active:
            self._active.setdefault(queue)
            self.wake()

    def _pump_if_woken(self) -> None:
        if self._woken:
            self._pump()

    def _pump(self) -> None:
        self._woken = False
        if self._closed:
            return
        try:
            self._send_what_may_leave()
        except Exception as error:
            # No caller may wait for records that would never be sent.
            self.close(ClientError(f"the producer cannot go on after a fault of its own: {error!r}"))
            raise

    def _send_what_may_leave(self) -> None:
        now = asyncio.get_running_loop().time()
        self._expire(now)
        if self._options.idempotent and self._idempotence.identity is None:
            if self._active and self._transaction is None:
                self._idempotence.seek()
            return
        linger_s = 0.0 if self._flushing else self._options.linger_s
        chosen = self._departures.choose(now, linger_s, self._idempotence.identity)
        if chosen.missing_leader:
            self._appender.clear()  # Records without key then go to a partition with a leader.
        for connection, sent in chosen.requests.items():
            self._send(connection, sent)
        if chosen.requests and self._active:
            self.wake()
        elif self._active:
            self._look_again(chosen.look_again_s)

    def _send(self, connection: Connection, sent: _Sent) -> None:
        options, transaction = self._options, self._transaction
        sent = [(queue, batch) for queue, batch in sent if not batch.abandoned]
        if not sent:
            return
        request = produce_request(
            sent, options.compression, options.acks, options.request_timeout_ms, transaction
        )
        try:
            version = produce_version(connection, transaction)
            if options.acks == 0:
                connection.send_unanswered(request, version=version)
                for queue, batch in sent:
                    self._acknowledge(queue, batch, -1, -1)
                return
            # The broker itself waits up to timeout_ms for replicas, so its answer may take a little longer.
            answer = _Answer(self, connection, sent)
            connection.send_for(
                answer, request, version=version, timeout_ms=options.request_timeout_ms + 1_000
            )
        except KafkaError as error:
            for queue, batch in sent:
                self._failed(queue, batch, error)
            return
        self._in_flight.add(connection, sent)

    # answers

    def _answered(self, answer: _Answer, response: ProduceResponse) -> None:
        self._busy_poll.end()
        self._in_flight.answered(answer.connection, answer.sent)
        if self._closed:
            return
        self._learn_brokers(response)
        by_partition = {
            (topic.name, partition.index): partition
            for topic in response.responses
            for partition in topic.partition_responses
        }
        for queue, batch in answer.sent:
            self._partition_answered(queue, batch, by_partition.get((queue.topic, queue.partition)))
        if self._active:
            self.wake()

    def _learn_brokers(self, response: ProduceResponse) -> None:
        """Learn the addresses of leaders that the answer names (KIP-951), if they are not known yet."""
        metadata = self._cluster.metadata
        for end in response.node_endpoints:
            if end.node_id not in metadata.brokers:
                metadata.learn_broker(BrokerAddress(end.node_id, end.host, end.port, end.rack))

    def _unanswered(self, answer: _Answer, error: KafkaError) -> None:
        self._busy_poll.end()
        self._in_flight.answered(answer.connection, answer.sent)
        if self._closed:
            return
        for queue, batch in answer.sent:
            self._failed(queue, batch, error)
        self._leaders.lost(answer.connection.address.id)
        self.wake()

    def _partition_answered(
        self, queue: _Queue, batch: _Batch, answer: PartitionProduceResponse | None
    ) -> None:
        if batch.abandoned:
            return
        if answer is None:
            left_out = f"the broker left {queue.topic}-{queue.partition} out of its answer"
            self._failed(queue, batch, ClientError(left_out))
            return
        code = ErrorCode.of(answer.error_code)
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._acknowledge(queue, batch, answer.base_offset, answer.log_append_time_ms)
            return
        leader = answer.current_leader
        if leader.leader_id >= 0:
            self._cluster.metadata.learn_leader(
                queue.topic, queue.partition, leader.leader_id, leader.leader_epoch
            )
        text = answer.error_message or code.message
        if code in TOO_LARGE and batch.count == 1 and batch.encoded is not None:
            text = f"a record that takes {batch.encoded.size} bytes is more than the topic takes: {text}"
        where = f"{queue.topic}-{queue.partition}"
        # A broker that has not learned of its own leadership yet is asked again, and at first no other broker is asked.
        told_less = queue.sent_to is not None and 0 <= leader.leader_epoch < queue.sent_to[1]
        is_behind = told_less and batch.attempts <= BEHIND_ATTEMPTS
        failure = self._cluster.failure(code, where, text, operation="WRITE", name=queue.topic)
        if code is ErrorCode.INVALID_PRODUCER_EPOCH and self._transaction and self._transaction.judge_epoch:
            self._spawn(self._failed_as_judged(queue, batch, self._transaction.judge_epoch(failure)))
            return
        self._failed(queue, batch, failure, may_have_moved=not is_behind)

    async def _failed_as_judged(self, queue: _Queue, batch: _Batch, judgement: Awaitable[KafkaError]) -> None:
        """Fail the batch after the coordinator has decided whether the producer is fenced (KIP-588)."""
        error = await judgement
        if not self._closed:
            self._failed(queue, batch, error)

    def _acknowledge(self, queue: _Queue, batch: _Batch, base_offset: int, append_time_ms: int) -> None:
        queue.acknowledged(batch)
        self._leaders.succeeded(queue)
        if self.on_acknowledged is not None:
            self.on_acknowledged(queue.topic, batch.all_records(), append_time_ms)
        self._settled(batch)
        batch.result.acknowledged(base_offset, append_time_ms)

    def _failed(
        self, queue: _Queue, batch: _Batch, error: KafkaError, *, may_have_moved: bool = True
    ) -> None:
        """Handle a failed attempt: send the batch again if that can help, else give it up."""
        if batch.abandoned:
            return
        code = error.code
        if code in TOO_LARGE and batch.count > 1:
            self._split_refused(queue, batch)
            return
        sequence_lost = self._options.idempotent and code in SEQUENCE_LOST
        if sequence_lost and batch.torn:
            retry = False
            error = KafkaError(code, f"{queue.topic}-{queue.partition}: {_TORN}")
            if self._transaction is None:
                self._idempotence.start_new_sequence(queue)
        elif sequence_lost and not (batch.alone and queue.is_first(batch)):
            retry = True  # An older batch had not arrived yet, or the numbers are being assigned again.
            batch.doubtful = False
        elif sequence_lost and self._transaction is not None:
            retry = False  # A batch missing in the transaction cannot be numbered again within it.
        elif sequence_lost:
            retry = not batch.doubtful
            self._idempotence.start_new_sequence(queue)
        else:
            retry = isinstance(error, (ConnectionLost, RequestTimedOut)) or code.retriable
            # After this retriable error alone it is certain that the batch was not appended.
            batch.doubtful |= code is not ErrorCode.NOT_ENOUGH_REPLICAS
        if retry and self._options.acks != 0:
            queue.give_back(batch)
            self._expires_s = min(self._expires_s, batch.created_s + self._options.delivery_timeout_s)
            self._split_oversized(queue)
            self._active[queue] = None
            unreachable = isinstance(error, (ConnectionLost, RequestTimedOut))
            self._leaders.failed(queue, moved=may_have_moved and (unreachable or code in LEADER_MOVED))
            return
        queue.given_up(batch)
        if self._transaction is None and batch.numbered and not sequence_lost:
            self._idempotence.start_new_sequence(queue)
        self._settle(batch, error)
        self.fail_transaction(error)

    def _split_refused(self, queue: _Queue, batch: _Batch) -> None:
        """Send a batch that a leader refused for its size in parts, and all other batches of this size, too."""
        queue.limit.refused(batch.size, asyncio.get_running_loop().time())
        queue.give_back(batch)
        self._expires_s = min(self._expires_s, batch.created_s + self._options.delivery_timeout_s)
        self._split(queue, batch)
        for other in self._queues.values():
            if other.topic == queue.topic:
                self._split_oversized(other)
        self._active[queue] = None

    def _split_oversized(self, queue: _Queue) -> None:
        for batch in queue.oversized():
            self._split(queue, batch)

    def _split(self, queue: _Queue, batch: _Batch) -> None:
        parts = queue.split(batch)
        self._appender.count(sum(part.record_bytes for part in parts) - batch.record_bytes)
        batch.result.split([(part.first - batch.first, part.result) for part in parts])
        batch.release()

    def _expire(self, now: float) -> None:
        if now < self._expires_s:
            return
        limit = self._options.delivery_timeout_s
        oldest_s = now
        for queue in self._active:
            identity = queue.identity
            if gone := queue.expired(now - limit):
                late = f"{queue.topic}-{queue.partition} took no record within {limit:g} s of delivery_timeout_ms"
                self._fail_waiting(queue, identity, gone, RequestTimedOut(late))
            oldest_s = min(oldest_s, queue.oldest_s)
        self._expires_s = oldest_s + limit

    def _refused(self, queue: _Queue, error: KafkaError) -> None:
        self._fail_waiting(queue, queue.identity, queue.expired(inf), error)

    def _fail_waiting(
        self, queue: _Queue, before: ProducerIdentity | None, gone: list[_Batch], error: KafkaError
    ) -> None:
        for batch in gone:
            self._settle(batch, error)
        self.fail_transaction(error)
        if queue.identity != before and self._transaction is None:
            self._idempotence.give_up(before)

    def _settle(self, batch: _Batch, error: KafkaError) -> None:
        self._settled(batch)
        batch.result.failed(error)

    def _settled(self, batch: _Batch) -> None:
        self._appender.count(-batch.record_bytes)
        batch.release()
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _give_up(self, error: KafkaError) -> None:
        for queue in self._active:
            for batch in queue.drain():
                self._settle(batch, error)

    def _spawn(self, coroutine: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(coroutine)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    def _look_again(self, at_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(at_s, self.wake)

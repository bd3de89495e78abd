"""Transactional writes that wait until this broker knows their transaction (rule T3): batches, and offsets of groups.

A client adds a partition to its transaction through its coordinator and the quorum. The partition's leader learns that
from the metadata feed, which may take a moment longer than the client's batch. So the batch waits until the image shows
it. If that takes too long, it waits until the image has everything that the quorum had decided after the batch came:
then it is certain that the batch belongs to no open transaction. For clients that add partitions by writing to them
(KIP-890; Produce 12, TxnOffsetCommit 5 and above), this module adds them.

A batch that is in the log already waits here, too, until the image has all that the quorum had decided when the batch
came. By then this broker has the marker of every transaction that had ended, or leads no more. A leader that was
replaced, and has not learnt of it, would take a record of the next transaction for a duplicate of a record in the last:
their producer may have given both the same sequence.

Writes of one producer to one partition leave in the order in which they came, each in the turn in which it is judged.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from ...protocol.cluster.transaction_table import Place, TransactionTable, by_topic
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.transaction_commands import AddToTransaction, ClientOrigin
from ..quorum.access import Quorum
from ..quorum.shared_catch_up import SharedCatchUp
from ..replication.replica.partition import Partition
from .batch_check import BatchCheck, TransactionGone, judge

logger = logging.getLogger(__name__)

GRACE_S = 0.02
"""Time to wait for the feed before the quorum is asked; the feed is rarely later."""
ASK_AGAIN_S = 0.1
WAIT_MAX_S = 5.0

_REFUSALS = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)
"""Errors of the quorum that stay the same if it is asked again."""


Released = Callable[[KafkaError | None], None]
"""A function that is called once: without an error the write must be appended before anything else happens; with an
error it may not be appended."""


class Adding(NamedTuple):
    """The transactional id of a client that adds partitions to its transaction by writing to them (KIP-890)."""

    transactional_id: str


class _Write(NamedTuple):
    producer_id: int
    producer_epoch: int
    adding: Adding | None
    released: Released
    is_duplicate: bool


class _Queue:
    """The transactional writes (batches, group offsets) of one producer to one partition that wait, in order of
    arrival."""

    __slots__ = ("changed", "partition", "task", "writes")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.writes: deque[_Write] = deque()
        self.changed = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    @property
    def place(self) -> Place:
        return self.partition.topic_id, self.partition.index


class PendingTransactionWrites:
    """The transactional writes that wait until this broker knows their transaction. Only the event loop's thread uses
    it."""

    def __init__(
        self,
        table: Callable[[], TransactionTable],
        quorum: Quorum,
        catch_up: SharedCatchUp,
        wall_ms: Callable[[], int],
    ) -> None:
        """Create an empty set of writes. `wall_ms` is this broker's clock, by which transactions begin."""
        self._table = table
        self._quorum = quorum
        self._shared_catch_up = catch_up
        self._wall_ms = wall_ms
        self._queues: dict[tuple[int, Place], _Queue] = {}

    @property
    def waiting(self) -> int:
        """The number of transactional writes that wait."""
        return sum(len(queue.writes) for queue in self._queues.values())

    def check_owner(self, producer_id: int, transactional_id: str) -> None:
        """Raises KafkaError INVALID_PRODUCER_ID_MAPPING if the producer id is known to belong to another transactional
        id.

        The owner of a producer id never changes.
        """
        transaction = self._table().by_producer.get(producer_id)
        if transaction is not None and transaction.transactional_id != transactional_id:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                f"producer id {producer_id} is not of the transactional id that the request names",
            )

    def admits(self, partition: Partition, producer_id: int, producer_epoch: int) -> bool:
        """Return whether a producer's transactional write to the partition may be appended now; otherwise it has to
        `wait`.

        Raises KafkaError: INVALID_PRODUCER_EPOCH, also as TransactionGone.
        """
        place = (partition.topic_id, partition.index)
        if (producer_id, place) in self._queues:
            return False
        return self._judge(partition, producer_id, producer_epoch) is BatchCheck.ACCEPT

    def wait(
        self,
        partition: Partition,
        producer_id: int,
        producer_epoch: int,
        adding: Adding | None,
        released: Released,
        *,
        is_duplicate: bool = False,
    ) -> None:
        """Keep a write until it may be appended or must be refused.

        `released` is called in the turn in which that is judged, never before this method returns. `adding` is set if
        the client adds partitions by writing to them. `is_duplicate` is set if the log has the batch; its caller checks
        the log again once this broker knows enough.
        """
        key = (producer_id, (partition.topic_id, partition.index))
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = _Queue(partition)
            queue.task = asyncio.create_task(
                self._attend(key, queue), name=f"transactional writes of {producer_id}"
            )
        queue.writes.append(_Write(producer_id, producer_epoch, adding, released, is_duplicate))

    def image_changed(self) -> None:
        """Decide about the waiting writes again, since transactions have changed in the image."""
        for queue in self._queues.values():
            queue.changed.set()

    def close(self) -> None:
        """Refuse all transactional writes that still wait, as the broker stops."""
        stopping = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker is stopping")
        queues, self._queues = self._queues, {}
        for queue in queues.values():
            if queue.task is not None:
                queue.task.cancel()
            writes, queue.writes = queue.writes, deque()
            for write in writes:
                _release(write, stopping)

    # ------------------------------------------------------------ one queue

    async def _attend(self, key: tuple[int, Place], queue: _Queue) -> None:
        try:
            while queue.writes:
                write = queue.writes[0]
                try:
                    await self._know_enough(queue, write)
                    if write.is_duplicate:
                        _release(queue.writes.popleft(), None)
                except KafkaError as error:
                    self._refuse(queue, write, error)
                self._release(queue)
        finally:
            self._queues.pop(key, None)

    async def _know_enough(self, queue: _Queue, write: _Write) -> None:
        """Wait until the write may be appended. Raises KafkaError if it may not, or if that is not known in time."""
        try:
            async with asyncio.timeout(WAIT_MAX_S):
                if write.is_duplicate:
                    await self._catch_up(queue)
                elif write.adding is not None:
                    await self._add(queue, write, write.adding)
                elif not await self._comes_by_itself(queue, write):
                    await self._learn(queue, write)
        except TimeoutError:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT if write.is_duplicate else ErrorCode.NOT_ENOUGH_REPLICAS,
                f"the quorum did not say in time whether producer {write.producer_id} writes to {queue.partition!r}",
            ) from None

    async def _comes_by_itself(self, queue: _Queue, write: _Write) -> bool:
        try:
            async with asyncio.timeout(GRACE_S):
                while not self._accepts(queue, write):
                    queue.changed.clear()
                    await queue.changed.wait()
        except TimeoutError:
            return False
        return True

    async def _learn(self, queue: _Queue, write: _Write) -> None:
        """Wait until the image has all that was decided when the write came, and no decided transaction is
        incomplete."""
        while True:
            await self._catch_up(queue)
            if self._accepts(queue, write):
                return
            if not self._is_being_ended(write.producer_id):
                raise KafkaError(
                    ErrorCode.INVALID_TXN_STATE,
                    f"{queue.partition!r} is not part of an open transaction of producer {write.producer_id}",
                )
            await self._change_or_pause(queue)

    async def _catch_up(self, queue: _Queue) -> None:
        """Ask the quorum until the image has all that was decided before it answered."""
        while not await self._asked(self._shared_catch_up.wait()):
            await self._change_or_pause(queue)

    async def _add(self, queue: _Queue, write: _Write, adding: Adding) -> None:
        """Add the write's partition to the client's transaction; try again while the quorum still ends the previous
        transaction."""
        command = AddToTransaction(
            transactional_id=adding.transactional_id,
            producer_id=write.producer_id,
            producer_epoch=write.producer_epoch,
            topics=by_topic([queue.place]),
            origin=ClientOrigin(now_ms=self._wall_ms()),
        )
        while not self._accepts(queue, write):
            try:
                if await self._asked(self._quorum.submit(command)):
                    continue
            except KafkaError as error:
                raise _as_produce_says(error) from error
            await self._change_or_pause(queue)

    async def _asked(self, question: Awaitable[Any]) -> bool:
        """Wait for the quorum's answer. Return False if the quorum was busy. Raises KafkaError if it refuses for
        good."""
        try:
            await question
        except KafkaError as error:
            if error.code in _REFUSALS:
                raise
            logger.debug("transactional batches wait: %s", error)
            return False
        return True

    async def _change_or_pause(self, queue: _Queue) -> None:
        queue.changed.clear()
        try:
            async with asyncio.timeout(ASK_AGAIN_S):
                await queue.changed.wait()
        except TimeoutError:
            return

    def _release(self, queue: _Queue) -> None:
        """Hand over the writes at the queue's front that may be appended now or are refused, in order, up to a write
        that must wait."""
        while queue.writes and not queue.writes[0].is_duplicate:
            try:
                if not self._accepts(queue, queue.writes[0]):
                    return
            except KafkaError as error:
                _release(queue.writes.popleft(), error)
                continue
            _release(queue.writes.popleft(), None)

    def _refuse(self, queue: _Queue, first: _Write, error: KafkaError) -> None:
        """Refuse the first write, and the later writes of its epoch: their sequence does not continue the log's.

        Writes of another epoch are from another client instance, and judged separately, as duplicates are.
        """

        def falls(write: _Write) -> bool:
            if first.is_duplicate or write.is_duplicate:
                return write is first
            return write.producer_epoch == first.producer_epoch

        refused = [write for write in queue.writes if falls(write)]
        queue.writes = deque(write for write in queue.writes if not falls(write))
        for write in refused:
            _release(write, error)

    def _accepts(self, queue: _Queue, write: _Write) -> bool:
        """Return whether to append the write now.

        It is true also if this broker no longer leads the partition, and so may never learn of the transaction: the
        append then refuses the write.
        """
        if queue.partition.leader is None:
            return True
        return self._judge(queue.partition, write.producer_id, write.producer_epoch) is BatchCheck.ACCEPT

    def _judge(self, partition: Partition, producer_id: int, producer_epoch: int) -> BatchCheck:
        place = (partition.topic_id, partition.index)
        entry = partition.log.producers.get(producer_id)
        return judge(self._table(), place, producer_id, producer_epoch, entry)

    def _is_being_ended(self, producer_id: int) -> bool:
        transaction = self._table().by_producer.get(producer_id)
        return transaction is not None and transaction.phase.is_decided


def _release(write: _Write, error: KafkaError | None) -> None:
    """Call a write's callback with None, so that it is appended, or with the error. Later writes go on even if the
    callback fails."""
    try:
        write.released(error)
    except Exception:
        logger.exception("a transactional write of producer %d is not answered", write.producer_id)


def _as_produce_says(error: KafkaError) -> KafkaError:
    """Return the error for a client that adds partitions by writing to them: it is fenced, or has to abort its
    transaction."""
    if error.code is ErrorCode.TRANSACTION_ABORTABLE:
        return TransactionGone(error.message)
    if error.code is ErrorCode.PRODUCER_FENCED:
        return KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, error.message)
    return KafkaError(ErrorCode.TRANSACTION_ABORTABLE, error.message)

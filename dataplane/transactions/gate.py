"""Where transactional batches wait whose transaction this broker does not know of yet (rule T3).

What a client has added to its transaction, through the broker that speaks for it to the quorum, reaches the leader of
the partition by the metadata feed, and that may take a moment longer than the client's batch. So the batch waits until
the image shows it; if it does not within a moment, until the image has everything that the quorum had decided after the
batch came: then it is known that it belongs to no open transaction. Clients that add partitions by writing to them
(KIP-890, Produce 12 and above) have them added here.

Batches of one producer for one partition leave in the order in which they came, each in the turn in which it is judged.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.transaction_commands import AddToTransaction, VerifyTransaction
from ...protocol.record_batch import BatchHeader
from ...protocol.transaction_table import Place, TransactionTable, by_topic
from ..replication.partition import Partition
from .acceptance import Verdict, judge
from .quorum import TransactionCommands

log = logging.getLogger(__name__)

GRACE_S = 0.02
"""The feed is rarely further behind."""
ASK_AGAIN_S = 0.1
WAIT_MAX_S = 5.0

_REFUSALS = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""What the quorum says that does not change when it is asked again."""


class Released(Protocol):
    """Called once with the batch, which is to be appended before anything else happens, or with why it may not be."""

    def __call__(self, outcome: memoryview | KafkaError) -> None: ...


class Adding(NamedTuple):
    """In whose name a partition may be added to the transaction."""

    transactional_id: str


class _Batch(NamedTuple):
    header: BatchHeader
    records: memoryview
    released: Released


class _Queue:
    """The batches of one producer for one partition."""

    __slots__ = ("adding", "batches", "changed", "partition", "task")

    def __init__(self, partition: Partition, adding: Adding | None) -> None:
        self.partition = partition
        self.adding = adding
        self.batches: deque[_Batch] = deque()
        self.changed = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    @property
    def place(self) -> Place:
        return self.partition.topic_id, self.partition.index


class TransactionGate:
    """One writer: the event loop."""

    def __init__(
        self, broker_id: int, table: Callable[[], TransactionTable], commands: TransactionCommands
    ) -> None:
        self._broker_id = broker_id
        self._table = table
        self._commands = commands
        self._queues: dict[tuple[int, Place], _Queue] = {}

    @property
    def waiting(self) -> int:
        """How many batches wait."""
        return sum(len(queue.batches) for queue in self._queues.values())

    def admits(self, partition: Partition, header: BatchHeader) -> bool:
        """Whether the batch may be appended now; else it has to `wait`.

        KafkaError: INVALID_PRODUCER_EPOCH.
        """
        place = (partition.topic_id, partition.index)
        if (header.producer_id, place) in self._queues:
            return False
        return self._judge(partition, header) is Verdict.ACCEPT

    def wait(
        self,
        partition: Partition,
        header: BatchHeader,
        records: memoryview,
        adding: Adding | None,
        released: Released,
    ) -> None:
        """Keep a batch until it may be appended or must be refused. `records` stay untouched until then; `adding`: the
        client adds partitions by writing to them."""
        key = (header.producer_id, (partition.topic_id, partition.index))
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = _Queue(partition, adding)
            queue.task = asyncio.create_task(
                self._attend(key, queue), name=f"transactional batches of {key[0]}"
            )
        queue.batches.append(_Batch(header, records, released))

    def image_changed(self) -> None:
        """Transactions have changed: some batch may be judged otherwise now."""
        for queue in self._queues.values():
            queue.changed.set()

    def close(self) -> None:
        """Refuse whatever still waits."""
        for queue in list(self._queues.values()):
            if queue.task is not None:
                queue.task.cancel()
            self._refuse(queue, KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker is stopping"))
        self._queues.clear()

    # ------------------------------------------------------------ one queue

    async def _attend(self, key: tuple[int, Place], queue: _Queue) -> None:
        try:
            while queue.batches:
                try:
                    await self._know_enough(queue)
                except KafkaError as error:
                    self._refuse(queue, error)
                self._release(queue)
        finally:
            del self._queues[key]

    async def _know_enough(self, queue: _Queue) -> None:
        """Wait until the first batch may be appended. KafkaError if it may not, or if it is not known in time."""
        header = queue.batches[0].header
        try:
            async with asyncio.timeout(WAIT_MAX_S):
                if queue.adding is not None:
                    await self._add(queue, header, queue.adding)
                elif not await self._comes_by_itself(queue, header):
                    await self._learn(queue, header)
        except TimeoutError:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"the quorum did not say in time whether producer {header.producer_id} writes to {queue.partition!r}",
            ) from None

    async def _comes_by_itself(self, queue: _Queue, header: BatchHeader) -> bool:
        try:
            async with asyncio.timeout(GRACE_S):
                while self._judge(queue.partition, header) is not Verdict.ACCEPT:
                    queue.changed.clear()
                    await queue.changed.wait()
        except TimeoutError:
            return False
        return True

    async def _learn(self, queue: _Queue, header: BatchHeader) -> None:
        """Ask until the image has all that was decided after the batch came, and nothing is under way any more."""
        while True:
            verify = VerifyTransaction(broker_id=self._broker_id, broker_epoch=self._commands.broker_epoch)
            if await self._asked(self._commands.verify(verify)):
                if self._judge(queue.partition, header) is Verdict.ACCEPT:
                    return
                if not self._is_being_ended(header.producer_id):
                    raise KafkaError(
                        ErrorCode.INVALID_TXN_STATE,
                        f"{queue.partition!r} is not part of an open transaction of producer {header.producer_id}",
                    )
            await self._change_or_pause(queue)

    async def _add(self, queue: _Queue, header: BatchHeader, adding: Adding) -> None:
        command = AddToTransaction(
            transactional_id=adding.transactional_id,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            topics=by_topic([queue.place]),
        )
        while self._judge(queue.partition, header) is not Verdict.ACCEPT:
            try:
                if await self._asked(self._commands.add(command)):
                    continue
            except KafkaError as error:
                raise _as_produce_says(error) from error
            await self._change_or_pause(queue)

    async def _asked(self, answer: Awaitable[object]) -> bool:
        """Whether the quorum has answered; not yet if it was busy. KafkaError for what it refuses for good."""
        try:
            await answer
        except KafkaError as error:
            if error.code in _REFUSALS:
                raise
            log.debug("transactional batches wait: %s", error)
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
        """In order, as many as may be appended now."""
        while queue.batches:
            batch = queue.batches[0]
            try:
                verdict = self._judge(queue.partition, batch.header)
            except KafkaError as error:
                queue.batches.popleft().released(error)
                continue
            if verdict is not Verdict.ACCEPT:
                return
            queue.batches.popleft().released(batch.records)

    def _refuse(self, queue: _Queue, error: KafkaError) -> None:
        """The first one, and with it those behind: their sequence does not continue what is in the log."""
        batches, queue.batches = queue.batches, deque()
        for batch in batches:
            batch.released(error)

    def _judge(self, partition: Partition, header: BatchHeader) -> Verdict:
        place = (partition.topic_id, partition.index)
        entry = partition.log.producers.get(header.producer_id)
        return judge(self._table(), place, header.producer_id, header.producer_epoch, entry)

    def _is_being_ended(self, producer_id: int) -> bool:
        transaction = self._table().by_producer.get(producer_id)
        return transaction is not None and transaction.phase.is_decided


def _as_produce_says(error: KafkaError) -> KafkaError:
    """To a client that adds by writing: fenced, or a transaction that it has to abort."""
    if error.code is ErrorCode.PRODUCER_FENCED:
        return KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, error.message)
    return KafkaError(ErrorCode.TRANSACTION_ABORTABLE, error.message)

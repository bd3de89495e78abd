"""The master of one partition: it takes over, writes, joins transactions of other masters, and reads.

assigned --> TAKING_OVER --drained--> MASTER --doubt--> TAKING_OVER ... --revoked--> gone

*Doubt* is any event that leaves the outcome of a transaction unknown: a missing answer, a fence, a lost coordinator.
The remedy is always the same: take over once more, and read the outcome from the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import NamedTuple

from ottla import (
    Consumer,
    KafkaError,
    Producer,
    ProducerFenced,
    TopicPartition,
    Transaction,
    TransactionWriter,
    WriterReceipt,
)

from .changes import Change, Row, Statement, Value, generation_of
from .replica import Replica

logger = logging.getLogger(__name__)
TRANSACTION_TIMEOUT_MS = 10_000
ANSWER_S = 15.0
"""Time in seconds after which a transaction has ended, committed or aborted."""
SEGMENT_BYTES = 512 * 1024
"""Size above which a change, for example of a large row, is written in segments; consumers of Ottla join them."""
PAUSE_S = 0.2
FENCED_PAUSE_S = 3.0


class NotMaster(Exception):
    """An error: this node is not the master of the partition, or not yet."""


class Doubtful(Exception):
    """An error: the transaction may have been committed, or not."""


class CommitsMissing(Exception):
    """An error: committed changes are missing from the log, so no master may continue without them."""


class Placed(NamedTuple):
    """The position of a change among those of its partition."""

    partition: int
    generation: int
    scn: int


class Master:
    """The master of one partition, from its assignment to this node until its revocation."""

    def __init__(self, replica: Replica, partition: int, ends: Consumer) -> None:
        """Begin to take over. `ends`: a consumer of committed records, used to ask for end offsets."""
        self.partition = partition
        self.state = replica.partitions[partition]
        self._replica = replica
        self._ends = ends
        # A single transaction at a time: each sees the rows that the previous one left.
        self._lock = asyncio.Lock()
        self._producer: Producer | None = None
        self._generation = -1
        self._doubt: asyncio.Future[None]
        self._task = asyncio.create_task(self._reign())

    @property
    def is_master(self) -> bool:
        """True if the master accepts reads and writes; an assignment alone is not enough."""
        return self._producer is not None

    async def resign(self) -> None:
        """Finish the current transaction, then stop being the master."""
        async with self._lock:
            self._producer = None
            self._task.cancel()
        await asyncio.wait([self._task])

    # ------------------------------------------------------------ taking over

    async def _reign(self) -> None:
        while True:
            self._doubt = asyncio.get_running_loop().create_future()
            try:
                async with Producer(
                    bootstrap_servers=self._replica.bootstrap,
                    transactional_id=self._replica.names.master_of(self.partition),
                    transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
                    delivery_timeout_ms=TRANSACTION_TIMEOUT_MS,
                    max_block_ms=TRANSACTION_TIMEOUT_MS,
                    large_message_segment_size=SEGMENT_BYTES,
                ) as producer:
                    await self._take_over(producer)
                    await self._doubt
            except (KafkaError, TimeoutError, Doubtful, CommitsMissing) as error:
                logger.warning("partition %d: taking over starts again: %s", self.partition, error)
                # Another node is the master, and the group will soon revoke the partition here. Fencing that node would
                # not help.
                pause_s = FENCED_PAUSE_S if isinstance(error, ProducerFenced) else PAUSE_S
            finally:
                self._producer = None
            await asyncio.sleep(pause_s)

    async def _take_over(self, producer: Producer) -> None:
        """Become the master, after the producer's start has fenced the former master.

        The former master can commit nothing more, except as a part of a transaction of another partition's master
        (`join`). Hence the marks.
        """
        self._generation = generation_of(producer.identity)
        # 1. Every part that the former master confirmed is before this mark. It is decided once the mark is stable.
        mark, _ = await self._mark(producer)
        await self._stable_beyond(mark)
        # 2. Transactions decided by then have a lower commit index than this second mark, and are applied before it.
        _, commit_index = await self._mark(producer)
        await self._replica.wait_for(commit_index)
        # 3. No acknowledged change is missing. (Transactions of other masters count SCNs that are not app versions.)
        if (known := producer.last_app_version) is not None and self.state.scn < known:
            raise CommitsMissing(f"SCN {known} was committed, and the log ends at {self.state.scn}")
        self._producer = producer
        where = (self.partition, self._generation, self.state.scn)
        logger.info("partition %d: master in generation %d at SCN %d", *where)

    async def _stable_beyond(self, offset: int) -> None:
        """Return once no open transaction has a record up to `offset`. The last one may take until its timeout."""
        place = TopicPartition(self._replica.names.log, self.partition)
        async with asyncio.timeout(2 * TRANSACTION_TIMEOUT_MS / 1000):
            stable = 0
            while stable <= offset:
                await asyncio.sleep(PAUSE_S / 10)
                stable = (await self._ends.end_offsets([place]))[place]

    async def _mark(self, producer: Producer) -> tuple[int, int]:
        """Write a mark; return its offset and its commit index."""
        transaction = await producer.begin()
        mark = Change.mark(self._generation).encode()
        sent = await producer.send(self._replica.names.log, mark, partition=self.partition)
        result = await transaction.commit()
        assert result.commit_index is not None
        return (await sent).offset, result.commit_index

    # ------------------------------------------------------------ reading

    async def read(self, sql: str, args: list[Value]) -> tuple[Placed, list[Row]]:
        """Query the partition. The result was true at some moment between call and return: linearizable.

        A master that was deposed without knowing it has old rows. So before it answers it sends a command through the
        quorum's Raft log, which is granted only to the present owner of the transactional id.
        """
        async with self._turn() as producer:
            await _confirm(producer)
            return self._placed(), self.state.query(sql, args)

    # ------------------------------------------------------------ writing

    @asynccontextmanager
    async def lead(self, statements: Iterable[Statement]) -> AsyncIterator[Led]:
        """Run a transaction that this master decides.

        Its own part, and parts that join in the block, commit together at the end of the block. If the block raises, no
        part counts.
        """
        async with self._turn() as producer:
            change = self._prepared(statements)
            assert change.scn is not None
            transaction = await producer.begin(app_version=change.scn)
            try:
                sent = await producer.send(self._replica.names.log, change.encode(), partition=self.partition)
                led = Led(transaction, self._placed(change))
                yield led
                await sent
            except (KafkaError, asyncio.CancelledError):
                raise  # taking over again also aborts the transaction
            except Exception:
                await transaction.abort()
                raise
            result = await transaction.commit()
            if result.was_committed or result.commit_index is None:
                raise Doubtful(f"SCN {change.scn} of partition {self.partition} is another transaction's")
            led.commit_index = result.commit_index
            await self._replica.wait_for(result.commit_index)

    @asynccontextmanager
    async def join(self, token: str, statements: Iterable[Statement]) -> AsyncIterator[Joined]:
        """Write a part of a transaction that another master decides. The block learns the outcome and sets
        `commit_index`.

        No other transaction runs here until the outcome is known. The writer belongs to the other master's
        transactional id, so a fence of this master does not stop it. Hence the confirmation after the write: it proves
        that this master was not replaced when the record was in the log. So a later master finds the record before its
        mark, and waits.
        """
        async with self._turn() as producer:
            change = self._prepared(statements)
            async with TransactionWriter.join(
                token,
                bootstrap_servers=self._replica.bootstrap,
                delivery_timeout_ms=TRANSACTION_TIMEOUT_MS,
                large_message_segment_size=SEGMENT_BYTES,
            ) as writer:
                await writer.send(self._replica.names.log, change.encode(), partition=self.partition)
                receipt = await writer.finish()
            await _confirm(producer)
            joined = Joined(receipt, self._placed(change))
            try:
                yield joined
            except Exception as error:  # after any error the transaction may count
                raise Doubtful(f"the outcome was not received: {error}") from error
            if joined.commit_index is not None:
                await self._replica.wait_for(joined.commit_index)

    def _prepared(self, statements: Iterable[Statement]) -> Change:
        rows = self.state.prepare(statements)
        if not rows:
            raise LookupError("no row would change")
        return Change(self._generation, self.state.scn + 1, self.state.scn, rows)

    def _placed(self, change: Change | None = None) -> Placed:
        scn = self.state.scn if change is None else change.scn
        assert scn is not None
        return Placed(self.partition, self._generation, scn)

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[Producer]:
        """Reserve the partition for one transaction or read. An error of the cluster leaves the partition in doubt."""
        async with self._lock:
            if (producer := self._producer) is None:
                raise NotMaster(f"partition {self.partition} has no master here")
            try:
                async with asyncio.timeout(ANSWER_S):
                    yield producer
            except (KafkaError, TimeoutError, Doubtful) as error:
                self._producer = None
                if not self._doubt.done():
                    self._doubt.set_exception(error)
                raise Doubtful(f"partition {self.partition}: {error or 'no answer in time'}") from error


class Led:
    """An open transaction of this master."""

    def __init__(self, transaction: Transaction, placed: Placed) -> None:
        self.token = transaction.token
        self.placed = [placed]
        self.commit_index = -1
        self._transaction = transaction

    def include(self, receipt: str, placed: Placed) -> None:
        """Add a part that another master has written."""
        self._transaction.include(receipt)
        self.placed.append(placed)


class Joined:
    """A part in another master's transaction. `commit_index`: None if the transaction was aborted."""

    def __init__(self, receipt: WriterReceipt, placed: Placed) -> None:
        self.receipt = receipt
        self.placed = placed
        self.commit_index: int | None = None


async def _confirm(producer: Producer) -> None:
    """Raise ProducerFenced if another producer has taken over the transactional id.

    Beginning a transaction is a command in the quorum's Raft log, and the quorum refuses it to all but the newest
    producer.
    """
    transaction = await producer.begin()
    await transaction.abort()

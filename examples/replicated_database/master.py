"""The master of one partition: takes over, writes, takes part in transactions of other masters, and reads.

    assigned --> TAKING_OVER --drained--> MASTER --doubt--> TAKING_OVER ... --revoked--> gone

*Doubt* is whatever leaves open how a transaction ended: an answer that did not come, a fence, a coordinator that went
away. There is one cure for all of it: take over once more, and see what the log says.
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
"""A transaction is over by then, one way or the other."""
SEGMENT_BYTES = 512 * 1024
"""A change with more bytes, as with a large row, goes into the log in segments; consumers of Ottla join them."""
PAUSE_S = 0.2
FENCED_PAUSE_S = 3.0


class NotMaster(Exception):
    """This node is not the master of that partition, or not yet."""


class Doubtful(Exception):
    """It may have been committed, or not."""


class CommitsMissing(Exception):
    """The log lacks what was committed: no master may go on as if that had never been."""


class Placed(NamedTuple):
    """Where a change stands among those of its partition."""

    partition: int
    generation: int
    scn: int


class Master:
    """Of one partition, from the moment the group assigns it to this node until it is revoked."""

    def __init__(self, replica: Replica, partition: int, ends: Consumer) -> None:
        """`ends`: a consumer that reads committed records, to ask for ends."""
        self.partition = partition
        self.state = replica.partitions[partition]
        self._replica = replica
        self._ends = ends
        # One transaction at a time: each sees the rows that the one before has left.
        self._lock = asyncio.Lock()
        self._producer: Producer | None = None
        self._generation = -1
        self._doubt: asyncio.Future[None]
        self._task = asyncio.create_task(self._reign())

    @property
    def is_master(self) -> bool:
        """Whether it accepts reads and writes. To be assigned is not enough."""
        return self._producer is not None

    async def resign(self) -> None:
        """End what is under way, then be master no more."""
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
                logger.warning("partition %d: taking over begins anew: %s", self.partition, error)
                # Another node has it, and the group is about to tell us. Fencing that node in turn would help nobody.
                pause_s = FENCED_PAUSE_S if isinstance(error, ProducerFenced) else PAUSE_S
            finally:
                self._producer = None
            await asyncio.sleep(pause_s)

    async def _take_over(self, producer: Producer) -> None:
        """The producer's start has fenced the former master: nothing of it can be committed any more, except as part of
        a transaction of another partition's master (`join`). Hence the marks:
        """
        self._generation = generation_of(producer.identity)
        # 1. Every part that the former master confirmed stands before this mark. It is decided once the mark is stable.
        mark, _ = await self._mark(producer)
        await self._stable_beyond(mark)
        # 2. What was decided by then has a lower commit index than this second mark, and is applied before it.
        _, commit_index = await self._mark(producer)
        await self._replica.wait_for(commit_index)
        # 3. Nothing that was acknowledged is missing. (Transactions of others count SCNs that are not app versions.)
        if (known := producer.last_app_version) is not None and self.state.scn < known:
            raise CommitsMissing(f"SCN {known} was committed, and the log ends at {self.state.scn}")
        self._producer = producer
        where = (self.partition, self._generation, self.state.scn)
        logger.info("partition %d: master in generation %d at SCN %d", *where)

    async def _stable_beyond(self, offset: int) -> None:
        """Return once no transaction is open that has a record up to `offset`. The last of them to end may take until
        its timeout."""
        place = TopicPartition(self._replica.names.log, self.partition)
        async with asyncio.timeout(2 * TRANSACTION_TIMEOUT_MS / 1000):
            stable = 0
            while stable <= offset:
                await asyncio.sleep(PAUSE_S / 10)
                stable = (await self._ends.end_offsets([place]))[place]

    async def _mark(self, producer: Producer) -> tuple[int, int]:
        """Its offset and its commit index."""
        transaction = await producer.begin()
        mark = Change.mark(self._generation).encode()
        sent = await producer.send(self._replica.names.log, mark, partition=self.partition)
        result = await transaction.commit()
        assert result.commit_index is not None
        return (await sent).offset, result.commit_index

    # ------------------------------------------------------------ reading

    async def read(self, sql: str, args: list[Value]) -> tuple[Placed, list[Row]]:
        """What is true at some moment between the call and its return: linearizable.

        A master that was deposed and does not know it has old rows. So before it answers it asks the quorum something
        that only the present owner of the transactional id is granted, through the Raft log.
        """
        async with self._turn() as producer:
            await _confirm(producer)
            return self._placed(), self.state.query(sql, args)

    # ------------------------------------------------------------ writing

    @asynccontextmanager
    async def lead(self, statements: Iterable[Statement]) -> AsyncIterator[Led]:
        """A transaction that this master decides: its own part, and others that join in the block, commit together at
        its end. If the block raises, nothing of it counts.
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
                raise  # to take over again aborts it, too
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
        """A part in a transaction that another master decides. The block learns how it ended, and sets `commit_index`.

        No other transaction has its turn until that is known. The writer belongs to the other master's transactional
        id, so a fence of ours does not stop it. Hence the confirmation after the write: who confirms was not replaced
        when the record stood in the log, so whoever replaces it later finds the record before its mark, and waits.
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
            except Exception as error:  # whatever it was: the transaction may count
                raise Doubtful(f"how it ended was not told: {error}") from error
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
        """The partition, for one transaction or read. What fails in the cluster leaves it in doubt."""
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
    """A transaction before its end."""

    def __init__(self, transaction: Transaction, placed: Placed) -> None:
        self.token = transaction.token
        self.placed = [placed]
        self.commit_index = -1
        self._transaction = transaction

    def include(self, receipt: str, placed: Placed) -> None:
        """What another master has written counts with it."""
        self._transaction.include(receipt)
        self.placed.append(placed)


class Joined:
    """A part in another master's transaction. `commit_index`: None if that was aborted."""

    def __init__(self, receipt: WriterReceipt, placed: Placed) -> None:
        self.receipt = receipt
        self.placed = placed
        self.commit_index: int | None = None


async def _confirm(producer: Producer) -> None:
    """Raises ProducerFenced if anybody has taken the transactional id over by now. To begin a transaction is a command
    in the quorum's Raft log, and the quorum refuses it to all but the newest producer."""
    transaction = await producer.begin()
    await transaction.abort()

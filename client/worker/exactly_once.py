"""Settlement in transactions: results, offsets and their metadata count together, or none of them.

A transaction has the results of tasks whose handlers have ended, in the order of their ends. If it is aborted, the same
results are sent again in the next one: no handler is called again. Results of a partition that was lost meanwhile are
left out, since another member works on its records.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from ...protocol.errors import KafkaError
from ...protocol.messages.offsets import NO_GENERATION
from ..backoff import Backoff
from ..consumer import Consumer
from ..consuming.group_metadata import ConsumerGroupMetadata
from ..exactly_once.batch import NewRecord, send_new
from ..exactly_once.output import Output, cured_by_aborting
from ..failures import TransactionFailed
from ..producer import Producer
from ..records import TopicPartition
from .arrivals import RecordSeries
from .partition_tasks import Task
from .settling import REMOVED, News, close_soon
from .tasks import CommitDue, Tasks

REFUSALS_UNTIL_REMOVED = 2
"""The number of refusals of one membership after which the group counts as having removed the member. A first refusal
may concern an old epoch, while the answer with the next epoch is under way."""

logger = logging.getLogger(__name__)

Ended = tuple[Task, Sequence[NewRecord]]


class InTransactions:
    """The transactions of one worker, one at a time."""

    def __init__(
        self,
        tasks: Tasks,
        consumer: Consumer,
        output: Output,
        *,
        news: News,
        commits: News,
        pump: Callable[[], None],
        every_s: float,
        max_batch_records: int,
        backoff: Backoff,
    ) -> None:
        """`news` and `commits` are told, and `pump` is called, after each transaction. `every_s`: the time for which
        results are gathered."""
        self._tasks = tasks
        self._consumer = consumer
        self._output = output
        self._news = news
        self._commits = commits
        self._pump = pump
        self._every_s = every_s
        self._max_batch_records = max_batch_records
        self._backoff = backoff
        self._ended: deque[Ended] = deque()
        self._due = asyncio.Event()
        """An event that is set once a transaction is due before `every_s` has passed."""
        self._under_way = False
        self._is_over = False
        self._flushes = 0
        self._refused: ConsumerGroupMetadata | None = None
        """The membership that the group has refused last."""
        self._refusals = 0
        """The number of times that the group has refused that membership."""

    async def start(self) -> None:
        """Reach the cluster, and fence an earlier producer with the transactional id. Raises KafkaError."""
        await self._output.producer.start()

    def settle(self, task: Task, results: Sequence[NewRecord]) -> None:
        """Count a task with its results in the next transaction; the next task of its lane may start now."""
        self._tasks.release(task)
        self._ended.append((task, results))
        self._news.tell()
        if len(self._ended) >= self._max_batch_records:
            self._due.set()

    def settle_all(self, series: RecordSeries) -> None:
        """Finish the records of a series; their offsets are in the next transaction."""
        self._tasks.ended(series)
        self._news.tell()
        if self._tasks.uncommitted >= self._max_batch_records:
            self._due.set()

    async def run(self) -> None:
        """Commit transactions until cancelled. Raises KafkaError for an error that another transaction does not
        cure."""
        try:
            while True:
                await self._gather()
                self._under_way = True
                try:
                    await self._batch()
                finally:
                    self._under_way = False
                self._commits.tell()
                self._news.tell()
                self._pump()
        finally:
            self._is_over = True
            self._news.tell()

    async def flush(self) -> None:
        """Wait until all results settled before are committed, or belong to lost partitions. Raises nothing.

        A handover waits for it, and only after the handover the member learns that the group has removed it. So it
        returns once the group refuses the member, too.
        """
        self._flushes += 1
        self._news.tell()
        self._due.set()
        try:
            while (self._ended or self._under_way or self._tasks.is_dirty) and not (
                self._is_over or self._is_removed
            ):
                await self._news.wait()
        finally:
            self._flushes -= 1

    async def stop(self) -> None:
        """End the open transaction if that can be done soon, and close the producer."""
        await close_soon(self._output)

    # inside

    @property
    def producer(self) -> Producer:
        """The producer of the next transaction."""
        return self._output.producer

    async def _gather(self) -> None:
        """Wait for results, and a little more for further ones."""
        while not (self._ended or self._tasks.is_dirty):
            await self._news.wait()
        if self._flushes or len(self._ended) >= self._max_batch_records:
            return
        self._due.clear()
        try:
            async with asyncio.timeout(self._every_s):
                await self._due.wait()
        except TimeoutError:
            return

    async def _batch(self) -> None:
        """Commit the next results in a transaction. It is repeated until it succeeds, or is void."""
        batch = [self._ended.popleft() for _ in range(min(self._max_batch_records, len(self._ended)))]
        for task, _ in batch:
            self._tasks.finish(task)
        due = self._tasks.commits(self._consumer.committable)
        while True:
            try:
                await self._output.settle()
                batch = [ended for ended in batch if not ended[0].tasks.gone]
                due = {partition: commit for partition, commit in due.items() if not commit.tasks.gone}
                if not due or await self._transaction(batch, due):
                    break
            except KafkaError as error:
                await self._output.abort(error)
                if self._output.is_over or not (self._output.dead or cured_by_aborting(error)):
                    raise
                logger.warning("%d results are sent again in another transaction: %s", len(batch), error)
                await asyncio.sleep(max(self._backoff.next_s(), 0.01))
        self._backoff.reset()

    async def _transaction(self, batch: Sequence[Ended], due: Mapping[TopicPartition, CommitDue]) -> bool:
        """Send the results and offsets in one transaction, and commit it.

        Return False if a partition was lost meanwhile: then it is aborted. Raises KafkaError.
        """
        producer = self._output.producer
        await producer.begin_transaction()
        for _, results in batch:
            for new in results:
                await send_new(producer, new)
        # The membership of this moment belongs to the partitions: none of them was lost so far. If one is lost later,
        # the membership is an old one, and the coordinator refuses the offsets.
        member = self._consumer.group_metadata()
        if member.generation == NO_GENERATION or any(commit.tasks.gone for commit in due.values()):
            await producer.abort_transaction()
            self._news.tell()
            await asyncio.sleep(max(self._backoff.next_s(), 0.01))
            return False
        places = {partition: commit.place for partition, commit in due.items()}
        try:
            await self._output.commit(places, member, lambda: True)
        except KafkaError as error:
            self._note_refusal(member, error)
            raise
        self._tasks.committed(due.values())
        return True

    def _note_refusal(self, member: ConsumerGroupMetadata, error: KafkaError) -> None:
        reason = error.__cause__ if isinstance(error, TransactionFailed) else error
        if isinstance(reason, KafkaError) and reason.code in REMOVED:
            self._refusals = self._refusals + 1 if member == self._refused else 1
            self._refused = member
            self._news.tell()

    @property
    def _is_removed(self) -> bool:
        """True if the group has gone on without the member, so that its results under way are void."""
        member = self._consumer.group_metadata()
        is_refused = member == self._refused and self._refusals >= REFUSALS_UNTIL_REMOVED
        return is_refused or member.generation == NO_GENERATION

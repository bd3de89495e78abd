"""Settlement of a share group's tasks in transactions: results and acknowledgements count together, or none of them.

A transaction has the results of tasks whose handlers have ended. All replicas have these results before the transaction
acknowledges the tasks. Until then the worker has the locks of the tasks, so an aborted transaction is repeated with the
same results. Once the transaction has acknowledged the tasks, an abort gives them back to the group, which delivers
them again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine, Iterable, Sequence
from typing import NamedTuple

from ...protocol.errors import KafkaError
from ..backoff import Backoff
from ..exactly_once.batch import NewRecord
from ..exactly_once.output import Output, cured_by_aborting
from ..failures import LostLock, TransactionFailed
from ..producer import Producer
from ..sharing.tasks import ShareTask
from .settling import News, close_soon, send_results

logger = logging.getLogger(__name__)


class _Ended(NamedTuple):
    """A task whose handler has ended, its results, and a future for the end of its transaction."""

    task: ShareTask
    results: Sequence[NewRecord]
    settled: asyncio.Future[None]


class ShareTransactions:
    """The transactions of one worker, one at a time."""

    def __init__(self, output: Output, *, every_s: float, max_batch_records: int, backoff: Backoff) -> None:
        """`every_s`: the time for which results are gathered."""
        self._output = output
        self._every_s = every_s
        self._max_batch_records = max_batch_records
        self._backoff = backoff
        self._ended: deque[_Ended] = deque()
        self._news = News()
        """A condition that is told of each new result, and of the end of the worker."""
        self._is_flushing = False

    @property
    def producer(self) -> Producer:
        """The producer of the next transaction."""
        return self._output.producer

    async def start(self) -> None:
        """Reach the cluster, and fence an earlier producer with the transactional id. Raises KafkaError."""
        await self._output.producer.start()

    def background(self) -> Sequence[Coroutine[None, None, None]]:
        """Return the work that commits transactions."""
        return [self._run()]

    async def settle(self, task: ShareTask, results: Sequence[NewRecord]) -> None:
        """Wait until a transaction with these results has ended. A task without results needs none."""
        if results:
            settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._ended.append(_Ended(task, results, settled))
            self._news.tell()
            await settled

    def flush(self) -> None:
        """Commit results from now on without waiting for further results."""
        self._is_flushing = True
        self._news.tell()

    async def stop(self) -> None:
        """End the open transaction if that can be done soon, and close the producer."""
        await close_soon(self._output)

    # inside

    async def _run(self) -> None:
        """Commit transactions until cancelled. Raises KafkaError for an error that another transaction does not
        cure."""
        batch: list[_Ended] = []
        try:
            while True:
                await self._gather()
                count = min(self._max_batch_records, len(self._ended))
                batch = [self._ended.popleft() for _ in range(count)]
                await self._settle(batch)
        finally:
            for ended in (*batch, *self._ended):
                ended.settled.cancel()

    async def _gather(self) -> None:
        """Wait for results, and a little more for further ones."""
        while not self._ended:
            await self._news.wait()
        until_s = asyncio.get_running_loop().time() + self._every_s
        while len(self._ended) < self._max_batch_records and not self._is_flushing:
            left_s = until_s - asyncio.get_running_loop().time()
            if left_s <= 0:
                return
            await self._news.wait(left_s)

    async def _settle(self, batch: Sequence[_Ended]) -> None:
        """Commit results in a transaction. It is repeated until it succeeds, or has given its tasks back."""
        open_tasks = list(batch)
        while open_tasks := [
            ended for ended in open_tasks if not (ended.task.acknowledged or ended.task.lost)
        ]:
            await self._end_former()
            try:
                await self._transaction(open_tasks)
            except KafkaError as error:
                await self._output.abort(error)
                if self._output.is_over or not (self._output.dead or _passes(error)):
                    raise
                again = sum(not ended.task.acknowledged for ended in open_tasks)
                logger.warning(
                    "a transaction was aborted; %d results are sent again, and %d records are delivered again: %s",
                    again,
                    len(open_tasks) - again,
                    error,
                )
                await asyncio.sleep(max(self._backoff.next_s(), 0.01))
            else:
                self._backoff.reset()
        for ended in batch:
            if not ended.settled.done():  # A worker that ends has cancelled it.
                ended.settled.set_result(None)

    async def _end_former(self) -> None:
        """End a former transaction, and replace a producer that is dead. Raises KafkaError if that is not possible."""
        while True:
            try:
                await self._output.settle()
            except KafkaError as error:
                if self._output.dead or not error.code.retriable:
                    raise
                logger.warning("the next transaction begins when this is over: %s", error)
                await asyncio.sleep(max(self._backoff.next_s(), 0.01))
            else:
                return

    async def _transaction(self, batch: Iterable[_Ended]) -> None:
        """Send results in a transaction, acknowledge their tasks, and commit. Raises KafkaError."""
        transaction = await self._output.producer.transaction().begin()
        await send_results(self._output.producer, (new for ended in batch for new in ended.results))
        transaction.acknowledge(*(ended.task for ended in batch))
        await self._output.commit_sent(lambda: True)


def _passes(error: KafkaError) -> bool:
    """Return whether another transaction may succeed where a transaction failed with this error."""
    reason = error.__cause__ if isinstance(error, TransactionFailed) else error
    return isinstance(reason, LostLock) or cured_by_aborting(error)

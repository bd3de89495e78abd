"""Settlement without transactions: results are acknowledged by all replicas first, then offsets are committed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress

from ...protocol.errors import ErrorCode, KafkaError
from ..backoff import Backoff
from ..consumer import Consumer
from ..exactly_once.batch import NewRecord
from ..producer import Producer
from ..records import OffsetAndMetadata
from .arrivals import RecordSeries
from .partition_tasks import Task
from .settling import CLOSE_S, News, passes, send_results
from .tasks import Tasks

logger = logging.getLogger(__name__)


class AtLeastOnce:
    """The commits of a worker, and the worker's records that are sent before a commit."""

    def __init__(
        self,
        tasks: Tasks,
        consumer: Consumer,
        producer: Producer,
        *,
        news: News,
        commits: News,
        pump: Callable[[], None],
        fail: Callable[[BaseException], None],
        commit_every_s: float,
        commit_after: int,
        backoff: Backoff,
    ) -> None:
        """`news` is told, and `pump` called, when a task is finished; `commits` is told after each commit. `fail` stops
        the worker with an error."""
        self._tasks = tasks
        self._consumer = consumer
        self.producer = producer
        """The producer of the results."""
        self._news = news
        self._commits = commits
        self._pump = pump
        self._fail = fail
        self._commit_every_s = commit_every_s
        self._commit_after = commit_after
        self._backoff = backoff
        self._due = asyncio.Event()
        self._one_at_a_time = asyncio.Lock()
        self._sending: set[asyncio.Task[None]] = set()
        self._has_room_for_text = True

    async def start(self) -> None:
        """Reach the cluster. Raises KafkaError."""
        await self.producer.start()

    def settle(self, task: Task, results: Sequence[NewRecord]) -> None:
        """Count a task as finished, after its results are in the cluster."""
        if not results:
            self._finish(task)
            return
        sending = asyncio.ensure_future(self._send(task, results))
        self._sending.add(sending)
        sending.add_done_callback(self._sending.discard)

    def settle_all(self, series: RecordSeries) -> None:
        """Count the records of a series as finished."""
        self._tasks.ended(series)
        self._hasten()

    async def run(self) -> None:
        """Commit once enough is finished, or enough time has passed. Raises KafkaError."""
        while True:
            while not self._tasks.is_dirty:
                await self._news.wait()
            if self._tasks.uncommitted < self._commit_after:
                self._due.clear()
                try:
                    async with asyncio.timeout(self._commit_every_s):
                        await self._due.wait()
                except TimeoutError:
                    pass
            try:
                await self._commit()
            except KafkaError as error:
                if not passes(error):
                    raise
                logger.warning("offsets are committed later: %s", error)
                await asyncio.sleep(max(self._backoff.next_s(), 0.05))

    async def flush(self) -> None:
        """Wait until the results settled before are in the cluster, and commit. Raises nothing."""
        if self._sending:
            await asyncio.wait(list(self._sending))
        try:
            await self._commit()
        except KafkaError as error:
            logger.warning("offsets could not be committed, and their records are worked on again: %s", error)

    async def stop(self) -> None:
        """Close the producer. Records that the cluster has not taken by then are dropped soon."""
        for sending in self._sending:
            sending.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await self.producer.stop()

    def _finish(self, task: Task) -> None:
        self._tasks.release(task)
        self._tasks.finish(task)
        self._hasten()

    def _hasten(self) -> None:
        """Let the next commit begin if enough is finished."""
        if self._tasks.uncommitted >= self._commit_after:
            self._due.set()

    async def _send(self, task: Task, results: Sequence[NewRecord]) -> None:
        try:
            await send_results(self.producer, results)
        except KafkaError as error:
            error.add_note(
                "A record that a worker sends failed; the record that it belongs to is not finished."
            )
            self._fail(error)
            self._tasks.release(task)
        else:
            self._finish(task)
        self._news.tell()
        self._pump()

    async def _commit(self) -> None:
        async with self._one_at_a_time:
            due = self._tasks.commits(self._consumer.committable)
            if not due:
                return
            commits = self._consumer.commits
            assert commits is not None  # It is a member of a group.
            for partition, commit in due.items():
                if commit.left_out:
                    logger.warning(
                        "%s-%d: %d runs of finished offsets do not fit beside offset %d; after a failure their records "
                        "are worked on again",
                        *partition,
                        commit.left_out,
                        commit.place.offset,
                    )
            places = {partition: commit.place for partition, commit in due.items()}
            if not self._has_room_for_text:
                places = {partition: OffsetAndMetadata(place.offset) for partition, place in places.items()}
            try:
                await commits.commit(places)
            except KafkaError as error:
                if error.code is not ErrorCode.OFFSET_METADATA_TOO_LARGE or not self._has_room_for_text:
                    raise
                self._has_room_for_text = False
                logger.warning(
                    "brokers refuse metadata of 3,500 bytes (offset.metadata.max.bytes), so after a failure all "
                    "records from the committed offset on are worked on again"
                )
                bare = {partition: OffsetAndMetadata(place.offset) for partition, place in places.items()}
                await commits.commit(bare)
            self._backoff.reset()
            self._tasks.committed(due.values())
            self._commits.tell()
            self._news.tell()

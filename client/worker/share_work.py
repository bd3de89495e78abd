"""The work of a member of a share group: each record by itself, accepted after the handler, or released or rejected.

A record whose handler fails is released with the delay of `retry`, and the group delivers it again, to any member. The
broker keeps the delay. If it cannot, the worker releases the record after the delay. The number of deliveries is the
number of the attempt.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ...protocol.errors import KafkaError
from ..backoff import Backoff
from ..consuming.deserialization import deserialization
from ..error_names import error_type
from ..exactly_once.batch import NewRecord
from ..failures import ClientClosed, LostLock, SerializationFailed, VersionUnsupported
from ..producer import Producer
from ..records import ConsumerRecord
from ..rejection import Reject
from ..sharing.consumer import ShareConsumer, stop_within
from ..sharing.tasks import Acknowledgement, ShareTask
from .arrivals import record_sizes
from .ending import Ending
from .handlers import HandlerCaller
from .letters import error_text
from .loop_watch import LoopWatch
from .options import WorkerSettings
from .rates import StartRates
from .settling import CLOSE_S, News, check_result, transactional_output
from .share_settling import ResultsFirst, ShareSettlement
from .share_transactions import ShareTransactions
from .stats import WorkerStats
from .worker_record import WorkerRecord

if TYPE_CHECKING:
    from ..tracing.attempts import AttemptTraces
    from ..tracing.spans import Creation

READ_S: Final = 1.0
"""The longest wait of a read, after which idleness is looked at again."""
CANCEL_GRACE_S: Final = 2.0
"""The time for which a cancelled handler may take to end."""
FINAL: Final = (Reject, SerializationFailed)
"""Errors that a further attempt would raise again."""

logger = logging.getLogger(__name__)


class ShareWork:
    """The parts of a worker in a share group, and their order of starting and stopping."""

    def __init__(
        self, topics: Sequence[str], settings: WorkerSettings, traces: AttemptTraces | None, ending: Ending
    ) -> None:
        self._settings = settings
        self._traces = traces
        self._ending = ending
        self._queue = ShareConsumer(*topics, **settings.of_share_consumer())
        self._deserialization = deserialization(*settings.deserializers)
        self._rates = StartRates(settings.work.rates)
        self._settlement = self._settled_by()
        self._caller: HandlerCaller | None = None
        self._held: dict[int, tuple[ShareTask, float]] = {}
        """The tasks that the worker has not acknowledged, by their identity, and the times at which they were read. A
        record that is delivered again is another task."""
        self._running: dict[asyncio.Task[None], ShareTask] = {}
        """The tasks whose handlers run."""
        self._settling: set[asyncio.Task[None]] = set()
        """The tasks whose results are on their way."""
        # One transaction is under way, and the results of the next one are gathered.
        settling = settings.settling
        self._most_settling = (
            2 * settling.max_batch_records if settling.transactional else settings.work.most_at_once
        )
        self._waiting: set[asyncio.Task[None]] = set()
        """The tasks that wait for their release."""
        self._unanswered = 0
        self._counts: Counter[str] = Counter()
        self._news = News()
        """A condition that is told after each end of a handler."""

    def _settled_by(self) -> ShareSettlement:
        settings, settling = self._settings, self._settings.settling
        if not settling.transactional:
            return ResultsFirst(Producer(**settings.of_producer()))
        return ShareTransactions(
            transactional_output(settings),
            every_s=settling.commit_every_s,
            max_batch_records=settling.max_batch_records,
            backoff=Backoff(settings.given.get("retry_backoff_max_ms", 1_000)),
        )

    async def run(self, caller: HandlerCaller, handler: str) -> None:
        """Work until the end, and let the handlers end then. Raises KafkaError; other errors are those of the end."""
        self._caller = caller
        background: list[asyncio.Task[None]] = []
        try:
            if await self._ending.unless_stopped(self._settlement.start, self._queue.start):
                background = await self._ending.until_stopped(
                    self._read(), LoopWatch(handler).run(), *self._settlement.background()
                )
                await self._drain()
        finally:
            self._ending.stopping.set()
            for task in (*background, *self._running, *self._settling, *self._waiting):
                task.cancel()
            await asyncio.sleep(0)
            caller.close()
            await asyncio.gather(self._settlement.stop(), self._leave())

    def stats(self, now_s: float) -> WorkerStats:
        """Return the state in numbers. Any thread may call it."""
        held = list(self._held.values())
        return WorkerStats(
            partitions=len(self._queue.assignment()),
            in_flight=len(self._running),
            held=len(held),
            held_bytes=sum(record_sizes([task for task, _ in held])),
            uncommitted=self._unanswered + len(self._settling),
            waiting=len(self._waiting),
            oldest_s=max(0.0, now_s - min((at_s for _, at_s in held), default=now_s)),
            lanes=0,
            longest_lanes=(),
            succeeded=self._counts["succeeded"],
            failed=self._counts["failed"],
            retried=self._counts["retried"],
            letters=self._counts["letters"],
        )

    # reading

    async def _read(self) -> None:
        """Start tasks until cancelled, or until nothing came for `idle_timeout_ms`. Raises KafkaError for an error that
        time does not cure."""
        work, loop = self._settings.work, asyncio.get_running_loop()
        backoff = Backoff(self._settings.given.get("retry_backoff_max_ms", 1_000))
        idle_s = None if work.idle_timeout_ms is None else work.idle_timeout_ms / 1000
        wait_s = READ_S if idle_s is None else min(READ_S, max(idle_s / 4, 0.01))
        busy_s = loop.time()
        while True:
            free = await self._free()
            try:
                tasks = await self._queue.getmany(timeout_ms=wait_s * 1000, max_records=free)
            except KafkaError as error:
                if not error.code.retriable:
                    raise
                logger.warning("reading goes on when this is over: %s", error)
                await asyncio.sleep(backoff.next_s())
                continue
            for task in tasks:
                backoff.reset()
                self._start(task, loop.time())
            if tasks or self._held or self._unanswered or not self._queue.assignment():
                busy_s = loop.time()
            elif idle_s is not None and loop.time() - busy_s >= idle_s:
                return

    async def _free(self) -> int:
        """Wait until a record may start, and return the number of records that may."""
        while (
            len(self._running) >= self._settings.work.most_at_once
            or len(self._settling) >= self._most_settling
        ):
            await self._news.wait()
        if not self._rates:
            return self._settings.work.most_at_once - len(self._running)
        await asyncio.sleep(self._rates.common_wait_s(asyncio.get_running_loop().time()))
        return 1

    def _start(self, task: ShareTask, now_s: float) -> None:
        self._held[id(task)] = task, now_s
        self._rates.take(None, now_s)
        running = asyncio.get_running_loop().create_task(self._work(task))
        self._running[running] = task
        running.add_done_callback(self._ended)

    def _ended(self, ended: asyncio.Task[None]) -> None:
        task = self._running.pop(ended, None)
        if (
            ended.cancelled() and task is not None and id(task) in self._held
        ):  # It was cancelled before it began.
            self._acknowledge(task, task.release)
        self._settling.discard(ended)
        self._waiting.discard(ended)
        if not ended.cancelled() and (error := ended.exception()) is not None:
            self._ending.fail(error)
        self._news.tell()

    # a task

    async def _work(self, task: ShareTask) -> None:
        try:
            results = await self._results(task)
        except asyncio.CancelledError as error:
            if self._ending.stopping.is_set():
                self._acknowledge(task, task.release)
            else:  # The handler raised it, or cancelled its own task.
                await self._failed(task, error)
        except Exception as error:
            await self._failed(task, error)
        except BaseException as error:  # SystemExit and KeyboardInterrupt: the program wants to end.
            self._acknowledge(task, task.release)
            self._ending.fail(error)
        else:
            self._counts["succeeded"] += 1
            self._left_handler(self._settling)
            await self._settle(task, results)

    async def _results(self, task: ShareTask) -> Sequence[NewRecord]:
        """Make an attempt, in a span if there are traces, and return the records that the handler sent."""
        if self._traces is None:
            return await self._attempt(task, None)
        with self._traces.span(task, task.delivery_count):
            return await self._attempt(task, self._traces.creation)

    async def _attempt(self, task: ShareTask, creation: Creation | None) -> Sequence[NewRecord]:
        assert self._caller is not None
        record: ConsumerRecord = task
        if self._deserialization is not None:
            record = self._deserialization.record(task)
        given = WorkerRecord.of(record, task.delivery_count, creation)
        await self._caller.call(given)
        for result in given.sent:
            check_result(self._settlement.producer, result)
        return given.sent

    async def _settle(self, task: ShareTask, results: Sequence[NewRecord]) -> None:
        """Accept a task once its results count. A result that fails stops the worker."""
        try:
            await self._settlement.settle(task, results)
        except KafkaError as error:
            error.add_note("A record that a worker sends failed; the record that it belongs to is released.")
            self._acknowledge(task, task.release)
            self._ending.fail(error)
        except asyncio.CancelledError:
            self._acknowledge(task, task.release)
            raise
        else:
            self._acknowledge(task, task.accept)

    async def _failed(self, task: ShareTask, error: BaseException) -> None:
        """Reject a task, or release it after a delay, as the number of its deliveries says."""
        self._counts["failed"] += 1
        where = f"{task.topic}-{task.partition}, offset {task.offset}"
        delay_s: float | None = None
        if not isinstance(error, FINAL):
            delay_s = self._settings.failures.retry.delay_s(task.delivery_count, random.random())
        if delay_s is None:
            self._counts["letters"] += 1
            logger.error(
                "a record is rejected after %d deliveries (%s)", task.delivery_count, where, exc_info=error
            )
            self._acknowledge(task, task.reject)
            return
        self._counts["retried"] += 1
        logger.warning(
            "attempt %d failed, and the next one is in %.3g s (%s): %s: %s",
            task.delivery_count,
            delay_s,
            where,
            error_type(error),
            error_text(error),
        )
        try:
            self._acknowledge(task, partial(task.release, delay=delay_s))
        except VersionUnsupported:  # The broker keeps no delays.
            await self._wait(delay_s)
            self._acknowledge(task, task.release)

    async def _wait(self, delay_s: float) -> None:
        """Wait before a release, at most until the worker stops. Another task may start meanwhile."""
        self._left_handler(self._waiting)
        with suppress(TimeoutError, asyncio.CancelledError):
            async with asyncio.timeout(delay_s):
                await self._ending.stopping.wait()

    def _left_handler(self, state: set[asyncio.Task[None]]) -> None:
        """Move the current task to its next state. Another handler may start meanwhile."""
        current = asyncio.current_task()
        assert current is not None
        del self._running[current]
        state.add(current)
        self._news.tell()

    def _acknowledge(self, task: ShareTask, call: Callable[[], Acknowledgement]) -> None:
        try:
            answer = None if task.acknowledged else call()  # A transaction may have done so.
        except (LostLock, ClientClosed) as error:
            logger.warning("%s-%d, offset %d: %s", task.topic, task.partition, task.offset, error)
        else:
            if answer is not None:
                self._unanswered += 1
                answer.add_done_callback(self._answered)
        self._held.pop(id(task), None)

    def _answered(self, _: Acknowledgement) -> None:
        self._unanswered -= 1

    # the end

    async def _drain(self) -> None:
        """Let the handlers end, for up to `drain_s` or until they are to be cancelled, and have their results count."""
        hurry: asyncio.Task[Any] = asyncio.ensure_future(self._ending.hurry.wait())
        drain_s = self._settings.work.drain_s
        drained_s = asyncio.get_running_loop().time() + drain_s
        self._settlement.flush()
        try:
            await _ends(self._running, drain_s, hurry)
        finally:
            hurry.cancel()
        if self._running:
            logger.warning(
                "%d handlers did not end within %g s, and are cancelled", len(self._running), drain_s
            )
            for running in list(self._running):
                running.cancel()
            await asyncio.wait(list(self._running), timeout=CANCEL_GRACE_S)
        if self._running:
            logger.error("%d handlers go on in spite of their cancellation", len(self._running))
        if self._waiting:
            await asyncio.wait(list(self._waiting), timeout=CANCEL_GRACE_S)
        if self._settling:
            left_s = max(0.0, drained_s - asyncio.get_running_loop().time()) + CLOSE_S
            await asyncio.wait(list(self._settling), timeout=left_s)
        if self._settling:
            logger.error(
                "the cluster did not take the last results in time, and their records are delivered again"
            )

    async def _leave(self) -> None:
        with suppress(ClientClosed):
            await stop_within(self._queue, CLOSE_S)


async def _ends(
    running: dict[asyncio.Task[None], ShareTask], within_s: float, hurry: asyncio.Task[Any]
) -> None:
    """Wait until all of these have ended, for a time, or until there is a hurry."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + within_s
    while running and not hurry.done() and (left_s := until_s - loop.time()) > 0:
        await asyncio.wait([*running, hurry], timeout=left_s, return_when=asyncio.FIRST_COMPLETED)

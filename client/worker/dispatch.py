"""The shell around the state of tasks: it starts handlers, and carries out the verdict on each end."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING

from ..consuming.deserialization import Deserialization
from ..error_names import error_type
from ..exactly_once.batch import NewRecord
from ..failures import SerializationFailed
from ..records import ConsumerRecord, TopicPartition
from ..rejection import Reject
from .arrivals import RecordSeries
from .handlers import Handler, HandlerCaller
from .letters import DeadLetter, error_text, letter_headers
from .partition_tasks import Task
from .retry_notes import note_headers, retry_topic
from .runners import Runner
from .settling import News, Settlement, check_result, gone_or_done
from .tasks import DeferredRetry, Halted, HeldRetry, LetterDue, OutdatedResult, Tasks, Verdict
from .worker_record import WorkerRecord, worker_records

if TYPE_CHECKING:
    from ..tracing.attempts import AttemptTraces
    from ..tracing.spans import Creation

CANCEL_GRACE_S = 2.0
"""The time for which a cancelled handler may take to end before its partition is given up all the same."""
TURN_S = 0.002
"""The time for which runners work on records whose handlers wait for nothing, before other work of the loop gets a
turn."""
FINAL = (Reject, SerializationFailed)
"""Errors that a further attempt would raise again."""

logger = logging.getLogger(__name__)


class Dispatch:
    """The running handlers of one worker.

    Runners, at most `concurrency`, await the handlers: each takes one task after the other, until none may start. A
    runner ends early if it was cancelled, or if a handler has changed its context variables. Another takes its place.
    Further runners start while the others are in handlers that wait, and at most double in a pass of the loop. So
    handlers that wait for nothing have one runner, and do not keep the loop from its other work.

    After a handler that waited for nothing, a runner works on a series of records, which have no tasks. The series ends
    once a handler waits, sends a record or fails, and at the end of the runner's turn.

    Invariant: a task runs, waits or is settled until it is released; then the next task of its lane may start.
    """

    def __init__(
        self,
        tasks: Tasks,
        caller: HandlerCaller,
        *,
        group_id: str,
        concurrency: int,
        dead_letter: DeadLetter | None,
        deserialization: Deserialization | None,
        traces: AttemptTraces | None,
        fail: Callable[[BaseException], None],
    ) -> None:
        """`traces` has the span of each attempt. `fail` stops the worker with an error."""
        self.tasks = tasks
        self.news = News()
        """A condition that is told after each end of a task, and after each read."""
        self.commits = News()
        """A condition that is told after each commit."""
        self.settlement: Settlement | None = None
        self._caller = caller
        self._group_id = group_id
        self._concurrency = concurrency
        self._dead_letter = dead_letter
        self._deserialization = deserialization
        self._traces = traces
        self._fail = fail
        self._is_stopping = False
        self._loop = asyncio.get_running_loop()
        self._clock = (
            time.monotonic if type(self._loop).time is asyncio.BaseEventLoop.time else self._loop.time
        )
        """The time of the loop, without a call of Python code where that is possible."""
        self._context = copy_context()
        self._direct = caller.direct if deserialization is None and traces is None else None
        """The handler, if an attempt needs nothing else than to await its coroutine."""
        self._attempt = self._called if self._direct is None else partial(self._awaited, self._direct)
        self._runners: set[Runner] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._starts_left = 1
        """The number of runners that may start in this pass of the loop."""
        self._more_starts_are_due = False
        """True if the next pass of the loop decides about further starts."""
        self._turn_waiters = 0
        """The number of runners that wait for their next turn, and then take the next tasks."""
        self._turn_ends_s = 0.0
        self._turn_is_new = False
        """True until a runner takes the turn: in each turn one works, however long the loop's other work is."""
        self._turn_is_due = False
        """True if the next pass of the loop begins a new turn."""

    # starting

    def offer(self, read: Mapping[TopicPartition, Sequence[ConsumerRecord]]) -> None:
        """Take over records that were read, and start tasks."""
        now_s, wall_ms = self._clock(), time.time() * 1000
        for partition, records in read.items():
            new = records if self._direct is None else worker_records(records)
            for warning in self.tasks.offer(partition, new, now_s, wall_ms):
                logger.warning("%s", warning)
        self.news.tell()  # Records that were finished before may have moved the offset to commit.
        self.pump()

    def pump(self) -> None:
        """Start tasks while there is room, and set a timer for the next one that waits."""
        while self._may_start_runner() and (task := self._next()) is not None:
            self._starts_left -= 1
            runner = Runner(task, self._run, self._context.copy(), self._waits)
            self._runners.add(runner)
            runner.start(self._loop).add_done_callback(partial(self._ended, runner))

    def _may_start_runner(self) -> bool:
        """Return whether a runner may start now. If not, the next pass of the loop decides anew."""
        if len(self._runners) >= self._concurrency:
            return False
        if not (self._starts_left or self._more_starts_are_due):
            self._more_starts_are_due = True
            self._loop.call_soon(self._start_more)
        return self._starts_left > 0

    def _start_more(self) -> None:
        self._more_starts_are_due = False
        if not self._turn_waiters:
            self._starts_left = max(1, len(self._runners))
            self.pump()

    def _next(self) -> Task | None:
        """Return the next task, which runs from now on. If none may start now, set a timer for the next one that
        waits."""
        if self._is_stopping:
            return None
        task = self.tasks.next(self._clock())
        if task is None:
            self._stop_timer()
            if (due_s := self.tasks.due_s()) is not None:
                self._timer = self._loop.call_at(due_s, self.pump)
        return task

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # ending

    def stop_starting(self) -> None:
        """Start no more tasks."""
        self._is_stopping = True
        self._stop_timer()

    def cancel(self, tasks: Iterable[Task]) -> None:
        """Cancel the handlers of these tasks."""
        running = {task for task in tasks if task.running}
        for runner in self._runners:
            if runner.task in running:
                runner.cancel()

    async def drain(self, tasks: Iterable[Task], drain_s: float) -> None:
        """Wait for the ends of these tasks; cancel those that take longer than `drain_s`, and wait a little more."""
        waited = list(tasks)
        if await gone_or_done(waited, self.news, self._clock() + drain_s):
            return
        if late := [task for task in waited if task.running]:
            logger.warning("%d handlers did not end within %g s, and are cancelled", len(late), drain_s)
        self.cancel(late)
        await gone_or_done(waited, self.news, self._clock() + CANCEL_GRACE_S)
        if stuck := [_where(task.record) for task in waited if task.running]:
            logger.error("%d handlers go on in spite of their cancellation: %s", len(stuck), ", ".join(stuck))

    async def abandon(self) -> None:
        """Cancel all handlers, and wait no longer for those that do not end."""
        for _ in range(2):
            self.cancel([runner.task for runner in self._runners if runner.task is not None])
            if self._runners:
                await asyncio.wait([runner.step for runner in self._runners], timeout=0.1)
        self._caller.close()

    # runners

    async def _run(self, runner: Runner) -> None:
        """Work on the runner's task, and on further records until none may start."""
        task = runner.task
        while task is not None:
            ended_at_once = await self._work(runner, task)
            if runner.is_spoilt():
                return
            if ended_at_once and (series := self._next_series()) is not None:
                await self._work_through(runner, series)
                if runner.is_spoilt():
                    return
            if self._clock() >= self._turn_ends_s:
                await self._next_turn()
            task = self._next()
            if task is not None and len(self._runners) < self._concurrency:
                self.pump()  # The end of a task may let several others start.

    def _next_series(self) -> RecordSeries | None:
        """Return the series that may begin in this turn."""
        if self._direct is None or self._is_stopping or self._clock() >= self._turn_ends_s:
            return None
        return self.tasks.series()

    async def _next_turn(self) -> None:
        """Let other work of the loop go on. All runners share a turn, so that many of them take no more time."""
        self._turn_waiters += 1
        try:
            while not self._turn_is_new and self._clock() >= self._turn_ends_s:
                if not self._turn_is_due:
                    self._turn_is_due = True
                    self._loop.call_soon(self._begin_turn)
                await asyncio.sleep(0)
            self._turn_is_new = False
        finally:
            self._turn_waiters -= 1

    def _begin_turn(self) -> None:
        self._turn_is_due = False
        self._turn_is_new = True
        self._turn_ends_s = self._clock() + TURN_S

    def _waits(self, runner: Runner) -> None:
        """Let other runners start, as this one waits. In a series the record of its handler becomes a task."""
        if runner.series is not None:
            self._interrupt(runner, runner.series)
            self.news.tell()
            self.pump()

    def _ended(self, runner: Runner, step: asyncio.Task[None]) -> None:
        """Note the end of a runner, and start another if there is work for it."""
        self._runners.discard(runner)
        if runner.task is not None:  # It was cancelled before it began.
            self.tasks.cancelled(runner.task)
            self.news.tell()
        if not step.cancelled() and (error := step.exception()) is not None:
            self._fail(error)
        self.pump()

    # a series

    async def _work_through(self, runner: Runner, series: RecordSeries) -> None:
        """Work on the records of a series, until the turn ends, or a handler does more than to end at once."""
        assert self._direct is not None
        runner.series = series
        handle, now_s, ends_s, is_spoilt = self._direct, self._clock, self._turn_ends_s, runner.is_spoilt
        try:
            for record in series:
                if (result := await handle(record)) is not None:
                    await self._caller.check(result)
                if record.sent:
                    self._check(record.sent)
                    break
                if runner.series is None or now_s() >= ends_s or is_spoilt():
                    break
            sent = record.sent
        except BaseException as error:
            self._raised(runner, runner.task or self._interrupt(runner, series), error)
        else:
            if runner.task is not None or sent:
                self._succeeded(runner.task or self._interrupt(runner, series), sent)
            else:
                self._settled_by.settle_all(series)
        finally:
            self._is_done(runner)

    def _interrupt(self, runner: Runner, series: RecordSeries) -> Task:
        """Make the record whose handler runs a task, which is no longer part of its series."""
        runner.series = None
        runner.task = task = self.tasks.interrupted(series, self._clock())
        self._settled_by.settle_all(series)
        return task

    # a task

    async def _work(self, runner: Runner, task: Task) -> bool:
        """Make an attempt. Return whether its handler ended at once, and did no more."""
        runner.task, runner.has_waited = task, False
        try:
            sent = await self._attempt(task)
        except BaseException as error:
            self._raised(runner, task, error)
            return False
        else:
            self._succeeded(task, sent)
            return not (runner.has_waited or sent)
        finally:
            self._is_done(runner)

    def _is_done(self, runner: Runner) -> None:
        runner.task = runner.series = None
        runner.is_cancelled = False
        self.news.tell()

    async def _awaited(self, handler: Handler, task: Task) -> Sequence[NewRecord]:
        """Await the handler, and return the records that it sent."""
        _raise_if_broken(task)
        given = task.record
        if task.failures or not isinstance(given, WorkerRecord):
            given = WorkerRecord.of(given, task.failures + 1)
        if (result := await handler(given)) is not None:
            await self._caller.check(result)
        if given.sent:
            self._check(given.sent)
        return given.sent

    async def _called(self, task: Task) -> Sequence[NewRecord]:
        """Call the handler, in a span if there are traces, and return the records that it sent."""
        if self._traces is None:
            return await self._called_in(task, None)
        with self._traces.span(task.record, task.failures + 1):
            return await self._called_in(task, self._traces.creation)

    async def _called_in(self, task: Task, creation: Creation | None) -> Sequence[NewRecord]:
        _raise_if_broken(task)
        record = task.record
        if self._deserialization is not None:
            record = self._deserialization.record(record)
        given = WorkerRecord.of(record, task.failures + 1, creation)
        await self._caller.call(given)
        self._check(given.sent)
        return given.sent

    @property
    def _settled_by(self) -> Settlement:
        assert self.settlement is not None
        return self.settlement

    def _check(self, sent: Iterable[NewRecord]) -> None:
        """Raise ValueError or TypeError for a record that cannot be sent."""
        producer = self._settled_by.producer
        for new in sent:
            check_result(producer, new)

    def _settle(self, task: Task, results: Sequence[NewRecord]) -> None:
        self._settled_by.settle(task, results)

    def _succeeded(self, task: Task, sent: Sequence[NewRecord]) -> None:
        self.tasks.succeeded(task)
        self._settle(task, sent)

    def _raised(self, runner: Runner, task: Task, error: BaseException) -> None:
        """Decide about a task whose attempt has raised an exception."""
        if isinstance(error, asyncio.CancelledError) and (runner.is_cancelled or self._is_stopping):
            self.tasks.cancelled(task)
        elif isinstance(error, Exception | asyncio.CancelledError):
            # A CancelledError is that of a handler, or the handler has cancelled its own task.
            self._failed(task, error)
        else:  # SystemExit and KeyboardInterrupt: the program wants to end.
            self.tasks.halt(task)
            self._fail(error)

    def _failed(self, task: Task, error: BaseException) -> None:
        verdict = self.tasks.failed(task, self._clock(), random.random(), is_final=isinstance(error, FINAL))
        self._log(task, error, verdict)
        match verdict:
            case HeldRetry():
                return
            case DeferredRetry(delay_s):
                self._settle(task, [self._deferred(task, delay_s)])
            case LetterDue():
                self._settle(task, [self._letter(task, error)])
            case OutdatedResult():
                self.tasks.release(task)
            case Halted(limit):
                error.add_note(f"The record is {_where(task.record)}, attempt {task.failures}.")
                if limit:
                    error.add_note(f"The worker stops, as dead letters are {limit}.")
                self._fail(error)
                self.tasks.halt(task)

    def _deferred(self, task: Task, delay_s: float) -> NewRecord:
        record = task.record
        at_ms = int((time.time() + delay_s) * 1000)
        return NewRecord(
            retry_topic(record.topic),
            record.value,
            record.key,
            headers=note_headers(record, at_ms, task.failures),
        )

    def _letter(self, task: Task, error: BaseException) -> NewRecord:
        assert self._dead_letter is not None
        record = task.record
        return NewRecord(
            self._dead_letter.topic,
            record.value,
            record.key,
            headers=letter_headers(record, self._group_id, error, task.failures),
        )

    def _log(self, task: Task, error: BaseException, verdict: Verdict) -> None:
        where, what = _where(task.record), f"{error_type(error)}: {error_text(error)}"
        match verdict:
            case HeldRetry() | DeferredRetry():
                delay_s = (
                    verdict.delay_s if isinstance(verdict, DeferredRetry) else verdict.at_s - self._clock()
                )
                logger.warning(
                    "attempt %d failed, and the next follows in %.3g s (%s): %s",
                    task.failures,
                    delay_s,
                    where,
                    what,
                )
            case LetterDue():
                logger.error(
                    "attempt %d failed, and the record becomes a dead letter (%s): %s",
                    task.failures,
                    where,
                    what,
                    exc_info=None
                    if isinstance(error, Reject)
                    else error,  # A decision of the handler needs no trace.
                )
            case OutdatedResult():
                logger.info("an attempt failed whose partition was given up (%s): %s", where, what)
            case Halted():
                logger.error("the worker stops at a record that failed (%s): %s", where, what)


def _raise_if_broken(task: Task) -> None:
    if task.broken is not None:
        raise Reject(f"lane: {error_type(task.broken)}: {error_text(task.broken)}") from task.broken


def _where(record: ConsumerRecord) -> str:
    return f"{record.topic}-{record.partition}, offset {record.offset}"

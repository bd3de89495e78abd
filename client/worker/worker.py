"""The public class of the worker: its parts, and their order of starting and stopping."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Unpack

from ..arguments import topic_name
from ..backoff import Backoff
from ..consumer import Consumer
from ..consuming.deserialization import deserialization
from ..consuming.options import check_topics
from ..exactly_once.output import Output
from ..failures import ClientClosed
from ..lifecycle import Lifecycle
from ..options import checks_options
from ..producer import Producer
from .at_least_once import AtLeastOnce
from .dispatch import CANCEL_GRACE_S, Dispatch
from .exactly_once import InTransactions
from .handlers import (
    Calls,
    CoroutineCalls,
    Handler,
    HandlerCaller,
    HandlerT,
    ThreadCalls,
    check_handler,
    is_async,
    name_of,
)
from .intake import PartitionIntake
from .loop_watch import LoopWatch
from .metrics import metrics_text
from .options import WORKER_OPTIONS, WorkerOptions, WorkerSettings
from .processes import ProcessCalls
from .retry_notes import retry_topic
from .settling import CLOSE_S, Settlement
from .signals import stopping_on_signals
from .stats import WorkerStats
from .tasks import Tasks

DRAIN_SHARE = 0.8
"""The share of `max_poll_interval_ms` for which handlers may delay a rebalance."""

logger = logging.getLogger(__name__)


@checks_options(*WORKER_OPTIONS)
class Worker:
    """A worker that calls a handler for each record, in parallel by key, with retries and dead letters.

        worker = Worker("orders", group_id="billing", dead_letter="orders.dlq", idle_timeout_ms=1_000)

        @worker.handler
        async def bill(order):
            if order.value == b"":
                raise Reject("empty")  # at once to the dead letters
            print(order.key, order.value)

        await worker.run()

    Records of a key are worked on one at a time, in the order of their offsets, retries included. Other keys go on
    meanwhile. A handler is a coroutine function, or a plain function, which runs in threads. It may be called again for
    a record after a failure of the process: at most for the records in handlers, and those finished since the last
    commit. With `transactional=True` the records that it sends count exactly once.

    An exception of the handler is an attempt that failed, and `retry` decides about the next. After the last attempt
    the record becomes a dead letter. Without a topic for dead letters the worker stops, and `run` raises the exception.
    """

    def __init__(self, *topics: str, **options: Unpack[WorkerOptions]) -> None:
        check_topics(topics, "Worker")
        if not topics:
            raise TypeError("Worker needs a topic, as in Worker('orders', group_id='billing')")
        self._topics = tuple(dict.fromkeys(map(topic_name, topics)))
        self._settings = settings = WorkerSettings.of(options)
        letters = settings.failures.letters
        if letters is not None and letters.topic in self._topics:
            raise ValueError(f"dead_letter is a topic that the worker does not read, not {letters.topic!r}")
        self._life = Lifecycle("worker")
        self._tasks = Tasks(settings.policy)
        self._traces = settings.traces()
        self._consumer = Consumer(**settings.of_consumer())
        self._handler: Handler | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()
        self._hurry = asyncio.Event()
        self._failure: BaseException | None = None
        self._background: list[asyncio.Task[None]] = []

    def handler(self, function: HandlerT) -> HandlerT:
        """Make `function` the handler of this worker, as a decorator, and return it unchanged.

        It gets a WorkerRecord. Its result is ignored. Raises TypeError for a function that cannot be a handler,
        RuntimeError for a second handler.
        """
        check_handler(function, self._settings.work.executor)
        if self._handler is not None:
            raise RuntimeError(f"the worker has a handler, {name_of(self._handler)}: make another worker")
        self._handler = function
        return function

    async def run(self) -> None:
        """Work until `stop`, until SIGTERM or SIGINT, or until nothing came for `idle_timeout_ms`.

        Records in handlers are finished then, for up to `drain_s`. A second signal cancels them. Raises KafkaError for
        an error that time does not cure, and the exception of a record that stops the worker.
        """
        if self._handler is None:
            raise RuntimeError("the worker has no handler: decorate a function with @worker.handler")
        self._life.start()
        self._loop = asyncio.get_running_loop()
        caller = HandlerCaller(
            self._calls(self._handler), name_of(self._handler), self._settings.work.timeout_s
        )
        dispatch, settlement = self._parts(caller)
        intake = self._intake(dispatch)
        try:
            with stopping_on_signals(self.stop):
                await settlement.start()
                await self._consumer.start()
                await self._until_stopped(
                    intake.run(), settlement.run(), LoopWatch(name_of(self._handler)).run()
                )
                await self._drain(dispatch, settlement)
        finally:
            self._life.stop()
            dispatch.stop_starting()
            await dispatch.abandon()
            await self._close(intake, settlement)
            self._life.stopped()
        if self._failure is not None:
            raise self._failure

    def stop(self, *, at_once: bool = False) -> None:
        """Begin to stop: start no more records, and end `run` once the records in handlers are finished.

        With `at_once` the handlers are cancelled, and their records are worked on again later. Returns at once. Any
        thread may call it, as may handlers and signal handlers.
        """
        self._on_loop(self._stopping.set)
        if at_once:
            self._on_loop(self._hurry.set)

    def stats(self) -> WorkerStats:
        """Return the state of the worker in numbers, for health checks and metrics. Any thread may call it."""
        return self._tasks.stats(0.0 if self._loop is None else self._loop.time())

    def metrics_text(self) -> str:
        """Return the state of the worker as metrics in Prometheus' text format, version 0.0.4.

        A program serves the text at a path of its choice. Any thread may call it.
        """
        return metrics_text(self._settings.work.group_id, self.stats())

    # parts

    def _calls(self, handler: Handler) -> Calls:
        if self._settings.work.executor == "processes":
            return ProcessCalls(handler, None if self._traces is None else self._traces.creation)
        return CoroutineCalls(handler) if is_async(handler) else ThreadCalls(handler)

    def _parts(self, caller: HandlerCaller) -> tuple[Dispatch, Settlement]:
        settings = self._settings
        dispatch = Dispatch(
            self._tasks,
            caller,
            group_id=settings.work.group_id,
            concurrency=settings.work.most_at_once,
            dead_letter=settings.failures.letters,
            deserialization=deserialization(*settings.deserializers),
            traces=self._traces,
            fail=self._fail,
        )
        make = self._in_transactions if settings.settling.transactional else self._at_least_once
        dispatch.settlement = make(dispatch)
        return dispatch, dispatch.settlement

    def _at_least_once(self, dispatch: Dispatch) -> Settlement:
        settings = self._settings
        return AtLeastOnce(
            self._tasks,
            self._consumer,
            Producer(**settings.of_producer()),
            news=dispatch.news,
            pump=dispatch.pump,
            fail=self._fail,
            commit_every_s=settings.settling.commit_every_s,
            commit_after=settings.work.most_at_once,
            backoff=self._backoff(),
        )

    def _in_transactions(self, dispatch: Dispatch) -> Settlement:
        settings, settling = self._settings, self._settings.settling
        instance = settings.given.get("group_instance_id")
        name = settling.transactional_id or f"{settings.work.group_id}-{instance or uuid.uuid4().hex}"

        def producer() -> Producer:
            return Producer(
                transactional_id=name,
                transaction_timeout_ms=settling.transaction_timeout_ms,
                **settings.of_producer(),
            )

        return InTransactions(
            self._tasks,
            self._consumer,
            Output(producer, replaceable=settling.transactional_id is None and not instance),
            news=dispatch.news,
            pump=dispatch.pump,
            every_s=settling.commit_every_s,
            max_batch_records=settling.max_batch_records,
            backoff=self._backoff(),
        )

    def _intake(self, dispatch: Dispatch) -> PartitionIntake:
        work = self._settings.work
        intake = PartitionIntake(
            self._consumer,
            dispatch,
            drain_s=min(work.drain_s, max(0.0, self._settings.max_poll_s * DRAIN_SHARE - CANCEL_GRACE_S)),
            idle_timeout_ms=work.idle_timeout_ms,
            backoff=self._backoff(),
            fail=self._fail,
        )
        topics = dict.fromkeys(self._topics)
        if self._settings.failures.retry_topic:
            topics |= dict.fromkeys(map(retry_topic, self._topics))
        self._consumer.subscribe(topics, listener=intake)
        return intake

    def _backoff(self) -> Backoff:
        return Backoff(self._settings.given.get("retry_backoff_max_ms", 1_000))

    # the end

    async def _until_stopped(
        self, reading: Coroutine[None, None, None], *background: Coroutine[None, None, None]
    ) -> None:
        """Run the parts until the worker is to stop, or one of them ends. The background goes on then."""
        self._background = [asyncio.create_task(work) for work in background]
        reader = asyncio.create_task(reading)
        stopping: asyncio.Task[Any] = asyncio.create_task(self._stopping.wait())
        tasks = [reader, *self._background]
        try:
            await asyncio.wait([*tasks, stopping], return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                    self._fail(error)
        finally:
            stopping.cancel()
            reader.cancel()
            await asyncio.gather(reader, stopping, return_exceptions=True)

    async def _drain(self, dispatch: Dispatch, settlement: Settlement) -> None:
        """Let the handlers end, and make their results count."""
        dispatch.stop_starting()
        draining = asyncio.ensure_future(self._drain_and_flush(dispatch, settlement))
        hurry = asyncio.ensure_future(self._hurry.wait())
        try:
            await asyncio.wait([draining, hurry], return_when=asyncio.FIRST_COMPLETED)
            if hurry.done() and not draining.done():
                dispatch.cancel(self._tasks.running())
                await asyncio.wait([draining], timeout=CANCEL_GRACE_S)
        finally:
            hurry.cancel()
            draining.cancel()
            await asyncio.gather(hurry, draining, return_exceptions=True)

    async def _drain_and_flush(self, dispatch: Dispatch, settlement: Settlement) -> None:
        loop, drain_s = asyncio.get_running_loop(), self._settings.work.drain_s
        drained_s = loop.time() + drain_s
        await dispatch.drain(self._tasks.leave(list(self._tasks.partitions)), drain_s)
        try:
            async with asyncio.timeout_at(max(drained_s, loop.time()) + CLOSE_S):
                await settlement.flush()
        except TimeoutError:
            logger.error(
                "the cluster did not take the last results in time, and their records are worked on again"
            )

    async def _close(self, intake: PartitionIntake, settlement: Settlement) -> None:
        for task in self._background:
            task.cancel()
        await intake.stop()
        try:
            # The producer is stopped first: no member that takes partitions over then waits for its transaction.
            await settlement.stop()
        finally:
            with suppress(ClientClosed):
                await self._consumer.stop()

    def _fail(self, error: BaseException) -> None:
        if self._failure is None:
            self._failure = error
        self._stopping.set()

    def _on_loop(self, call: Callable[[], None]) -> None:
        if self._loop is None or asyncio._get_running_loop() is self._loop:
            call()
        else:
            with suppress(RuntimeError):  # The loop is closed: the worker has ended.
                self._loop.call_soon_threadsafe(call)

"""The public class of the worker: its handler, its start, and its stop.

The work of a member of a consumer group is in `group_work.py`, that of a member of a share group in `share_work.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, Unpack

from ..arguments import topic_name
from ..consuming.options import check_topics
from ..lifecycle import Lifecycle
from ..options import checks_options
from .ending import Ending
from .group_work import GroupWork
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
from .metrics import metrics_text
from .options import WORKER_OPTIONS, WorkerOptions, WorkerSettings
from .processes import ProcessCalls
from .share_work import ShareWork
from .signals import stopping_on_signals
from .stats import WorkerStats


class Work(Protocol):
    """The work of a member of a group."""

    async def run(self, caller: HandlerCaller, handler: str) -> None:
        """Work until the end, and let the handlers end then. Raises KafkaError; other errors are those of the end.
        `handler`: the name of the handler, for the log."""

    def stats(self, now_s: float) -> WorkerStats:
        """Return the state in numbers. Any thread may call it."""


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
        names = tuple(dict.fromkeys(map(topic_name, topics)))
        self._settings = settings = WorkerSettings.of(options)
        letters = settings.failures.letters
        if letters is not None and letters.topic in names:
            raise ValueError(f"dead_letter is a topic that the worker does not read, not {letters.topic!r}")
        self._life = Lifecycle("worker")
        self._traces = settings.traces()
        self._ending = Ending()
        work = ShareWork if settings.work.source == "share" else GroupWork
        self._work: Work = work(names, settings, self._traces, self._ending)
        self._handler: Handler | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

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
        try:
            with stopping_on_signals(self.stop):
                await self._work.run(caller, name_of(self._handler))
        finally:
            self._life.stopped()
        if self._ending.failure is not None:
            raise self._ending.failure

    def stop(self, *, at_once: bool = False) -> None:
        """Begin to stop: start no more records, and end `run` once the records in handlers are finished.

        With `at_once` the handlers are cancelled, and their records are worked on again later. Returns at once. Any
        thread may call it, as may handlers and signal handlers.
        """
        self._on_loop(self._ending.stopping.set)
        if at_once:
            self._on_loop(self._ending.hurry.set)

    def stats(self) -> WorkerStats:
        """Return the state of the worker in numbers, for health checks and metrics. Any thread may call it."""
        return self._work.stats(0.0 if self._loop is None else self._loop.time())

    def metrics_text(self) -> str:
        """Return the state of the worker as metrics in Prometheus' text format, version 0.0.4.

        A program serves the text at a path of its choice. Any thread may call it.
        """
        return metrics_text(self._settings.work.group_id, self.stats())

    # inside

    def _calls(self, handler: Handler) -> Calls:
        if self._settings.work.executor == "processes":
            return ProcessCalls(handler, None if self._traces is None else self._traces.creation)
        return CoroutineCalls(handler) if is_async(handler) else ThreadCalls(handler)

    def _on_loop(self, call: Callable[[], None]) -> None:
        if self._loop is None or asyncio._get_running_loop() is self._loop:
            call()
        else:
            with suppress(RuntimeError):  # The loop is closed: the worker has ended.
                self._loop.call_soon_threadsafe(call)

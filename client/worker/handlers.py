"""Calls of the program's handler: a coroutine on the event loop, or a plain function in a thread or a process, with a
timeout.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from typing import Any, Protocol, TypeVar

from .threads import HandlerThreads
from .worker_record import WorkerRecord

Handler = Callable[[WorkerRecord], Any]
HandlerT = TypeVar("HandlerT", bound=Callable[..., Any])
STUCK_S = 10.0
"""The time after a cancellation at which a handler that goes on is reported."""

logger = logging.getLogger(__name__)


class Calls(Protocol):
    """A way to call a handler."""

    @property
    def coroutine_function(self) -> Handler | None:
        """The handler, if a call needs nothing else than to await its coroutine; None for other handlers."""

    @property
    def prepare(self) -> Callable[[WorkerRecord], Awaitable[None]] | None:
        """The work before a call that does not belong to its time; None if there is none."""

    def call(self, record: WorkerRecord) -> Awaitable[object]:
        """Call the handler, and wait for its end. Raises its exception."""

    def close(self) -> None:
        """End threads and processes."""


class CoroutineCalls:
    """Calls of a coroutine function, as part of the caller's task."""

    prepare = None

    def __init__(self, handler: Handler) -> None:
        self.coroutine_function = handler

    def call(self, record: WorkerRecord) -> Awaitable[object]:
        """Call the handler, and wait for its end. Raises its exception."""
        return self.coroutine_function(record)  # type: ignore[no-any-return]

    def close(self) -> None:
        """End nothing: tasks belong to the caller."""


class ThreadCalls:
    """Calls of a plain function in threads."""

    coroutine_function = prepare = None

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._threads = HandlerThreads("ottla-worker")

    async def call(self, record: WorkerRecord) -> object:
        """Call the handler in a thread, and wait for its end. Raises its exception.

        A cancellation sets `record.cancelled`, and the wait goes on, since a thread cannot be ended. A second
        cancellation ends the wait.
        """
        return await until_ended(self._threads, lambda: self._handler(record), record, name_of(self._handler))

    def close(self) -> None:
        """End the threads; a thread in a handler ends with its call."""
        self._threads.close()


async def until_ended(
    threads: HandlerThreads, call: Callable[[], object], record: WorkerRecord, name: str
) -> object:
    """Run a call in a thread, wait for its end in spite of one cancellation, and return its result or raise its
    exception."""
    running = threads.run(call)
    interrupted: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError as error:
            if interrupted is not None:
                logger.error("handler %s was left behind in its thread: it does not end", name)
                raise
            interrupted = error
            record.cancelled.set()
    outcome = running.result()
    if interrupted is not None:
        raise interrupted
    if outcome.error is not None:
        raise outcome.error
    return outcome.result


class HandlerCaller:
    """The calls of one handler, each with the timeout, and a check of the result."""

    def __init__(self, calls: Calls, name: str, timeout_s: float | None) -> None:
        self._calls = calls
        self._name = name
        self._timeout_s = timeout_s
        self._has_warned = False

    @property
    def direct(self) -> Handler | None:
        """The handler, if a call is to await its coroutine, and to `check` a result. None if a call needs more."""
        return self._calls.coroutine_function if self._timeout_s is None else None

    async def call(self, record: WorkerRecord) -> None:
        """Call the handler, and wait for its end.

        Raises its exception, TimeoutError after the timeout, and TypeError for a generator, none of whose code has
        run.
        """
        if (prepare := self._calls.prepare) is not None:
            await prepare(record)
        if self._timeout_s is not None:
            await self._call_within(self._timeout_s, record)
        elif (result := await self._calls.call(record)) is not None:
            await self.check(result)

    async def check(self, result: object) -> None:
        """Check a result that is not None: a handler has none. Raises TypeError for a generator, as `call` does."""
        if isinstance(result, Awaitable):
            result = await result
        if isinstance(result, Generator | AsyncGenerator):
            raise TypeError(f"handler {self._name} is a generator, whose code did not run: it must not yield")
        if result is not None and not self._has_warned:
            self._has_warned = True
            logger.warning("handler %s returned %s, which has no effect", self._name, type(result).__name__)

    async def _call_within(self, timeout_s: float, record: WorkerRecord) -> None:
        late = asyncio.get_running_loop().call_later(timeout_s + STUCK_S, self._report, record)
        try:
            async with asyncio.timeout(timeout_s) as limit:
                if (result := await self._calls.call(record)) is not None:
                    await self.check(result)
        except TimeoutError as error:
            if limit.expired():
                raise TimeoutError(f"handler {self._name} took longer than {timeout_s:g} s") from error
            raise
        finally:
            late.cancel()

    def close(self) -> None:
        """End threads and processes."""
        self._calls.close()

    def _report(self, record: WorkerRecord) -> None:
        logger.error(
            "handler %s goes on %g s after its timeout, and keeps its key and its place (%s-%d, offset %d)",
            self._name,
            STUCK_S,
            record.topic,
            record.partition,
            record.offset,
        )


def check_handler(handler: object, executor: str) -> None:
    """Check a function that is to be the handler. Raises TypeError."""
    if not callable(handler):
        raise TypeError(f"a handler is a function of a record, not {handler!r}")
    if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        raise TypeError(f"handler {name_of(handler)} is a generator: it must not yield")
    if executor == "processes" and is_async(handler):
        raise TypeError(f"handler {name_of(handler)} is async: executor='processes' needs a plain function")
    try:
        inspect.signature(handler).bind(None)
    except TypeError as error:
        raise TypeError(f"handler {name_of(handler)} takes one argument, the record: {error}") from None
    except ValueError:  # Some built-in functions have no signature.
        return


def is_async(handler: Callable[..., Any]) -> bool:
    """Return whether a handler is a coroutine function, or an object with such a call."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None)  # noqa: B004 - its kind is asked for, not its presence
    )


def name_of(handler: Callable[..., Any]) -> str:
    """Return the name of a handler for logs."""
    return getattr(handler, "__qualname__", None) or type(handler).__qualname__

"""Threads for handlers that block: as many as calls under way, each reused, and none that delays the end of the
interpreter.

The executors of the standard library wait for their threads when the interpreter ends. A handler that never returns
would keep the process alive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any, NamedTuple

from ..failures import ClientClosed


class CallOutcome(NamedTuple):
    """The end of a call: its result, or the exception that it raised."""

    result: object
    error: BaseException | None


class HandlerThreads:
    """Daemon threads that run calls. All methods belong to the event loop."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._idle: list[SimpleQueue[Any]] = []
        self._is_closed = False
        self._count = 0

    def run(self, call: Callable[[], object]) -> asyncio.Future[CallOutcome]:
        """Run `call` in a thread, in a copy of the caller's context. The future has its end.

        To cancel the future has no effect on the call.
        """
        if self._is_closed:
            raise ClientClosed("the worker was stopped")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[CallOutcome] = loop.create_future()
        calls = self._idle.pop() if self._idle else self._new()

        def ended(outcome: CallOutcome) -> None:
            if self._is_closed:
                calls.put(None)
            else:
                self._idle.append(calls)
            if not future.done():
                future.set_result(outcome)

        def tell(outcome: CallOutcome) -> None:
            try:
                loop.call_soon_threadsafe(ended, outcome)
            except RuntimeError:  # The loop was closed while the call went on.
                calls.put(None)

        calls.put((partial(copy_context().run, call), tell))
        return future

    def close(self) -> None:
        """End the idle threads now, and each other thread at the end of its call."""
        self._is_closed = True
        while self._idle:
            self._idle.pop().put(None)

    def _new(self) -> SimpleQueue[Any]:
        calls: SimpleQueue[Any] = SimpleQueue()
        self._count += 1
        Thread(target=_serve, args=(calls,), name=f"{self._name}-{self._count}", daemon=True).start()
        return calls


def _serve(calls: SimpleQueue[Any]) -> None:
    while (item := calls.get()) is not None:
        call, tell = item
        try:
            outcome = CallOutcome(call(), None)
        except BaseException as error:
            outcome = CallOutcome(None, error)
        tell(outcome)
        del item, call, tell, outcome  # An idle thread keeps no record alive.

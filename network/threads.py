"""Blocking calls in threads beside the event loop, for as long as the process lives.

`asyncio.to_thread` refuses work once the main thread has ended, because all executors end with it. Other threads may
run for hours afterwards. At the very end clients are stopped, which needs files, host names and logins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from threading import Thread
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run `work` in a thread that has the caller's context variables, and return its result. Raises its errors.

    Executors end with the main thread; from then on each call gets a dedicated thread. When Python no longer starts
    threads (from 3.12 on, while the interpreter shuts down), the call runs here and the loop waits.
    """
    call: Callable[[], T] = partial(copy_context().run, partial(work, *args, **kwargs))
    try:
        running = asyncio.get_running_loop().run_in_executor(None, call)
    except RuntimeError as error:
        # Only this text shows that executors have ended, which happens a moment before the main thread ends. All other
        # errors go to the caller: a loop that has shut its threads down, or no more threads while the work may be
        # queued.
        if not str(error).startswith("cannot schedule new futures"):
            raise
        running = _in_own_thread(call)
    return await running


def _in_own_thread(call: Callable[[], T]) -> asyncio.Future[T]:
    outcome: Future[T] = Future()
    outcome.set_running_or_notify_cancel()  # so that no caller can cancel it

    def run() -> None:
        try:
            outcome.set_result(call())
        except BaseException as error:
            outcome.set_exception(error)

    try:
        Thread(target=run, daemon=True).start()
    except RuntimeError:
        run()
    return asyncio.wrap_future(outcome)

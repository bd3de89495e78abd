"""What blocks, in a thread beside the event loop, for as long as the process lives.

`asyncio.to_thread` takes nothing more once the main thread has ended: then the threads of all executors have. Other
threads may go on for hours, and at the very end clients are stopped, which takes files, names and logins.
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
    """What `work` returns or raises, in a thread that has the caller's context variables.

    Once executors have ended, as the main thread does, it is a thread of its own. Where Python begins none any more
    (from 3.12 on, when the interpreter is ending) it is done here, and the loop waits.
    """
    call: Callable[[], T] = partial(copy_context().run, partial(work, *args, **kwargs))
    try:
        running = asyncio.get_running_loop().run_in_executor(None, call)
    except RuntimeError as error:
        # That executors have ended is told by this text alone: they do so a moment before the main thread. All else is
        # the caller's: a loop that has given its threads up, or no more threads, when the work may be in a queue.
        if not str(error).startswith("cannot schedule new futures"):
            raise
        running = _in_own_thread(call)
    return await running


def _in_own_thread(call: Callable[[], T]) -> asyncio.Future[T]:
    told: Future[T] = Future()
    told.set_running_or_notify_cancel()  # so that nobody can take it back

    def run() -> None:
        try:
            told.set_result(call())
        except BaseException as error:
            told.set_exception(error)

    try:
        Thread(target=run, daemon=True).start()
    except RuntimeError:
        run()
    return asyncio.wrap_future(told)

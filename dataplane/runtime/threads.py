"""Blocking work in a thread, for whoever lets go of something afterwards that the thread uses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

_Result = TypeVar("_Result")


async def in_thread(work: Callable[[], _Result], threads: Executor | None = None) -> _Result:
    """What `work` returns or raises, run in one of `threads`, else of the loop's own.

    A caller that is cancelled is so once the thread has ended, however often it is cancelled until then: with
    `asyncio.to_thread` it would go on at once, and close files under the thread.
    """
    running = asyncio.get_running_loop().run_in_executor(threads, work)
    cancelled: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.wait((running,))
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return running.result()
    if not running.cancelled():
        running.exception()  # Else asyncio complains that nobody wanted to know.
    raise cancelled

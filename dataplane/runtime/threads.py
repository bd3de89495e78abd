"""Blocking work in a thread, for whoever lets go of something afterwards that the thread uses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import TypeVar

from .time_slices import pieces

_Result = TypeVar("_Result")
_Item = TypeVar("_Item")

_AT_ONCE = 32
"""Items that one of several threads takes."""


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


def spread(name: str, work: Callable[[_Item], None], items: Sequence[_Item], threads: int) -> None:
    """Do the work for all items, in so many threads, whose names begin with `name`. Blocks. Each takes many of them at
    a time: threads that have their turns after every small piece of work take more of the processor than the work.
    """

    def do(some: Sequence[_Item]) -> None:
        for item in some:
            work(item)

    if threads == 1:
        do(items)
        return
    with ThreadPoolExecutor(max_workers=threads, thread_name_prefix=name) as pool:
        for _ in pool.map(do, pieces(items, _AT_ONCE)):
            pass

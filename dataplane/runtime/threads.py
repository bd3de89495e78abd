"""Functions that run blocking work in threads. Callers may afterwards release resources that the work uses, since they
return only once the thread has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import TypeVar

from .time_slices import pieces

_Result = TypeVar("_Result")
_Item = TypeVar("_Item")

_AT_ONCE = 32
"""The number of items that a thread takes at once."""


async def in_thread(work: Callable[[], _Result], threads: Executor | None = None) -> _Result:
    """Run `work` in one of `threads`, or else in a thread of the event loop's executor. Returns or raises its outcome.

    If the caller is cancelled, it is cancelled only once the thread has ended, however often it is cancelled until
    then. With `asyncio.to_thread` the caller would go on at once, and close files that the thread uses.
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
        running.exception()  # Otherwise asyncio logs that the exception was never retrieved.
    raise cancelled


def spread(name: str, work: Callable[[_Item], None], items: Sequence[_Item], threads: int) -> None:
    """Do the work for all items in a number of `threads`, whose names begin with `name`. Blocks.

    A thread takes many items at once: switching threads after every small piece of work takes more processor time than
    the work.
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

"""Work of a backup in several tasks at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


async def in_lanes(count: int, work: Callable[[int], Coroutine[Any, Any, None]]) -> None:
    """Run `work` in `count` tasks at once, each with its number. Once a task fails, the others are cancelled.

    Raises the first failure. `asyncio.TaskGroup` is no alternative: until Python 3.13, the calling task counts as
    cancelled after a failure of the group, and later time-outs of the task end with CancelledError.
    """
    tasks = [asyncio.ensure_future(work(number)) for number in range(count)]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

"""The end of a worker: the requests to stop it, and the error that ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any


class Ending:
    """The state of one worker's end, which all its parts share."""

    def __init__(self) -> None:
        self.stopping = asyncio.Event()
        """An event that is set once no more records start."""
        self.hurry = asyncio.Event()
        """An event that is set once handlers are to be cancelled."""
        self.failure: BaseException | None = None
        """The first error that ended the worker."""

    def fail(self, error: BaseException) -> None:
        """Stop the worker with an error."""
        if self.failure is None:
            self.failure = error
        self.stopping.set()

    async def unless_stopped(self, *starts: Callable[[], Coroutine[None, None, None]]) -> bool:
        """Start the parts, one after the other, unless the worker is to stop before. Return whether they have started.
        Raises the error of a part that does not start."""
        starting = asyncio.create_task(_one_by_one(starts))
        stopping = asyncio.create_task(self.stopping.wait())
        try:
            await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            starting.cancel()
            await asyncio.wait([starting, stopping])
        if starting.cancelled():
            return False
        await starting
        return True

    async def until_stopped(
        self, reading: Coroutine[None, None, None], *background: Coroutine[None, None, None]
    ) -> list[asyncio.Task[None]]:
        """Run the parts until the worker is to stop, or one of them ends. Return the background, which goes on."""
        behind = [asyncio.create_task(work) for work in background]
        reader = asyncio.create_task(reading)
        stopping: asyncio.Task[Any] = asyncio.create_task(self.stopping.wait())
        tasks = [reader, *behind]
        try:
            await asyncio.wait([*tasks, stopping], return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                    self.fail(error)
        except BaseException:
            for task in behind:
                task.cancel()
            raise
        finally:
            stopping.cancel()
            reader.cancel()
            await asyncio.gather(reader, stopping, return_exceptions=True)
        return behind


async def _one_by_one(starts: Iterable[Callable[[], Coroutine[None, None, None]]]) -> None:
    for start in starts:
        await start()

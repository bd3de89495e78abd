"""The thread that writes to the disk: what is given to it, in that order, and back to the loop.

A pool of one thread would do the same. It makes a future with a lock for each piece of work, and there are several for
each entry of the log.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable

logger = logging.getLogger(__name__)

Finished = Callable[[Callable[[], None], Exception | None], None]
"""Called on the loop with what is to be done after a piece of work, and what it raised."""

_Job = tuple[Callable[[], None], Callable[[], None]]


class SyncThread:
    """One thread beside the loop. `give` and `stop` are called on the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, finished: Finished) -> None:
        self._loop = loop
        self._finished = finished
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="raft-sync", daemon=True)
        self._thread.start()

    def give(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        """Run `work`, which blocks, after all that was given before; then call `finished` with `done` on the loop."""
        self._jobs.put((work, done))

    async def stop(self) -> None:
        """Return once everything that was given has run."""
        self._jobs.put(None)
        await self._loop.run_in_executor(None, self._thread.join)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            work, done = job
            problem: Exception | None = None
            try:
                work()
            except Exception as error:
                problem = error
            try:
                self._loop.call_soon_threadsafe(self._finished, done, problem)
            except RuntimeError:
                logger.debug("the event loop was closed before the node was stopped")

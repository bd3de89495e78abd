"""A thread that runs blocking disk work in order and reports each completion to the event loop.

A thread pool of size one would do the same, but it creates a future with a lock for each job, and there are several
jobs for each entry of the log.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable

logger = logging.getLogger(__name__)

Finished = Callable[[Callable[[], None], Exception | None], None]
"""Callback on the loop: receives the continuation of a job, and the error that the job raised or None."""

_Job = tuple[Callable[[], None], Callable[[], None]]


class SyncThread:
    """A thread beside the event loop that runs blocking work in order. `give` and `stop` are called on the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, finished: Finished) -> None:
        self._loop = loop
        self._finished = finished
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="raft-sync", daemon=True)
        self._thread.start()

    def give(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        """Run blocking `work` after all earlier work; then call `finished` with `done` on the loop."""
        self._jobs.put((work, done))

    async def stop(self) -> None:
        """Wait until all work has run."""
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

"""Group commit for flush.messages=1. Flushes run in a few threads, one at a time for each log. Records that are
appended during a flush share the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from .partition import Partition

_THREADS = 4
_RETRY_S = 0.5


class Flusher:
    """The flushes of all logs with flush.messages=1, in threads. Each result is reported to the replica on the event
    loop.
    """

    def __init__(
        self,
        on_flushed: Callable[[Partition, int], None],
        on_failure: Callable[[Partition, Exception], None],
    ) -> None:
        self._on_flushed = on_flushed
        self._on_failure = on_failure
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="flush")
        # Partitions whose flush is running; True if records were appended since it began.
        self._running: dict[Partition, bool] = {}
        self._closed = False

    def request(self, partition: Partition) -> None:
        """Flush the records that the replica's log has now. During a running flush the call requests one more after
        it.
        """
        if self._closed:
            return
        if partition in self._running:
            self._running[partition] = True
            return
        self._running[partition] = False
        future = asyncio.get_running_loop().run_in_executor(self._threads, partition.log.flush)
        future.add_done_callback(lambda done: self._done(partition, done))

    def _done(self, partition: Partition, future: asyncio.Future[int]) -> None:
        appended_since = self._running.pop(partition)
        if future.cancelled():
            return
        error = future.exception()
        if isinstance(error, Exception):
            self._on_failure(partition, error)
            if partition.log.failure is None:
                # A full disk: without another attempt, callers that wait for the flush would wait for ever.
                asyncio.get_running_loop().call_later(_RETRY_S, self.request, partition)
            return
        if appended_since:
            self.request(partition)
        self._on_flushed(partition, future.result())

    def close(self) -> None:
        """Wait for running flushes. Later requests are ignored."""
        self._closed = True
        self._threads.shutdown(wait=True)

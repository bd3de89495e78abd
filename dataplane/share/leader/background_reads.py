"""Reads of one share partition in threads: of headers that are not in the page cache, and of keys."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from ....protocol.errors import KafkaError
from ...log import LogSlice
from ...replication.replica.partition import Partition
from ..partition import SharePartition
from .cold_headers import read_ahead
from .key_reads import read_keys


class BackgroundReads:
    """The reads of one share partition. One read is on its way at a time, and its end wakes the waiting fetches."""

    __slots__ = ("_doubted", "_failure", "_is_warm", "_replica", "_task", "_wake")

    def __init__(
        self,
        replica: Partition,
        wake: Callable[[], None],
        doubted: Callable[[Partition, int, int], None],
    ) -> None:
        """`doubted` checks a replica for damage at an offset, in a number of bytes."""
        self._replica, self._wake, self._doubted = replica, wake, doubted
        self._task: asyncio.Task[None] | None = None
        self._is_warm = False
        self._failure: KafkaError | None = None

    @property
    def is_busy(self) -> bool:
        """True if a read is on its way."""
        return self._task is not None

    def took_warm(self) -> bool:
        """Return whether headers were read since the last call."""
        is_warm, self._is_warm = self._is_warm, False
        return is_warm

    def check(self) -> None:
        """Raise the error of the last read of keys once. Raises KafkaError KAFKA_STORAGE_ERROR."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def warm(self, records: LogSlice) -> None:
        """Read the beginning of a slice into the page cache. The slice is released."""
        self._begin(records, self._warmed(records))

    async def _warmed(self, records: LogSlice) -> None:
        try:
            await read_ahead(records)
            self._is_warm = True
        except OSError as error:
            records.failed(error)

    def learn_keys(self, share: SharePartition, records: LogSlice, first: int) -> None:
        """Read the keys of a slice from an offset on, at most as many as the window may have. The slice is released."""
        self._begin(records, self._learned(share, records, first))

    async def _learned(self, share: SharePartition, records: LogSlice, first: int) -> None:
        try:
            share.learn_keys(await read_keys(records, first, share.limits.record_locks))
        except KafkaError as error:
            self._failure = error
            self._doubted(self._replica, first, records.size)

    def _begin(self, records: LogSlice, read: Coroutine[Any, Any, None]) -> None:
        assert self._task is None, "a read is on its way"

        def ended(task: asyncio.Task[None]) -> None:
            records.release()
            self._task = None
            if not task.cancelled():
                self._wake()

        self._task = asyncio.get_running_loop().create_task(read)
        self._task.add_done_callback(ended)

    def close(self) -> None:
        """End the read that is on its way."""
        if self._task is not None:
            self._task.cancel()

"""Full data folders: their replicas give way to others until there is free space again."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from functools import partial

from ...protocol.errors import KafkaError
from ..log.storage_errors import lacks_resources
from ..replication.replicas.replicas import Replicas
from ..runtime.threads import in_thread
from ..storage.directory import LogDirectory
from ..storage.log_store import LogStore
from ..storage.room import Room, try_room

logger = logging.getLogger(__name__)

TRIAL_INTERVAL_S = 0.5
_TOLD_AGAIN_AFTER_S = 0.1
"""Delay before later refusals of a full folder are applied. New replicas in the folder are marked then, too."""


class RoomWatch:
    """The watch over free space in each data folder: full folders get trial writes until one succeeds for long enough.
    Owned by the event loop; trials run in a thread.

    A full folder is marked at the first write that it refuses, with every replica in it. A shortage of descriptors or
    memory often passes at once, so a folder is marked only if a trial write fails, too.
    """

    def __init__(self, logs: LogStore, replicas: Replicas, interval_s: float = TRIAL_INTERVAL_S) -> None:
        self._logs = logs
        self._replicas = replicas
        self._interval_s = interval_s
        self._rooms = {directory: Room() for directory in logs.directories}
        self._doubted: set[LogDirectory] = set()
        self._watching: asyncio.Task[None] | None = None
        self._telling: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._closed = False
        logs.on_lack = self._refused_in_any_thread

    def lack(self) -> str:
        """Return the reason why usable data folders cannot be written now; empty while all can be written."""
        return "; ".join(
            directory.lack.message for directory in self._logs.usable if directory.lack is not None
        )

    def _refused_in_any_thread(self, directory: LogDirectory, error: KafkaError) -> None:
        with contextlib.suppress(RuntimeError):  # The event loop has ended.
            self._loop.call_soon_threadsafe(self._refused, directory, error)

    def _refused(self, directory: LogDirectory, error: KafkaError) -> None:
        if self._closed or directory in self._doubted:
            return
        if directory.lack is not None:
            if self._telling is None:
                self._telling = self._loop.call_later(_TOLD_AGAIN_AFTER_S, self._tell)
            return
        if lacks_resources(error):
            self._doubted.add(directory)
        else:
            self._ran_out(directory, error)
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch(), name="room in data folders")

    def _ran_out(self, directory: LogDirectory, error: KafkaError) -> None:
        self._rooms[directory].ran_out(error, self._loop.time())
        directory.lack = error
        self._tell()
        logger.error(
            "%s takes no records for now, others lead its replicas where they can: %s",
            directory.path,
            error.message,
        )

    def _tell(self) -> None:
        if self._telling is not None:
            self._telling.cancel()
            self._telling = None
        keys = frozenset(self._logs.without_room())
        if any(directory.lack is not None for directory in self._logs.usable):
            # Logs that could not be created are missing for the same reason.
            keys |= self._replicas.making.without_log
        self._replicas.cannot_write(keys)

    async def _watch(self) -> None:
        """Make trial writes in every affected data folder until all folders can be written."""
        while lacking := [
            directory
            for directory in self._logs.usable
            if directory.lack is not None or directory in self._doubted
        ]:
            for directory in lacking:
                await self._try(directory)
            self._tell()
            await asyncio.sleep(self._interval_s)

    async def _try(self, directory: LogDirectory) -> None:
        now_s: Callable[[], float] = self._loop.time
        try:
            await in_thread(partial(try_room, directory.path))
        except KafkaError as error:
            if directory in self._doubted:
                self._ran_out(directory, error)
            self._logs.disk_refused(directory, error)
            self._rooms[directory].tried(error, now_s())
        else:
            if directory.lack is not None and self._rooms[directory].tried(None, now_s()):
                directory.lack = None
                logger.warning("%s has room again: its replicas follow, and may lead", directory.path)
        self._doubted.discard(directory)

    async def close(self) -> None:
        """Stop the trial writes, once the disk has answered."""
        self._closed = True
        if self._telling is not None:
            self._telling.cancel()
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])

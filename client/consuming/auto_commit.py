"""Automatic commits: at intervals, before partitions are given up, and at the end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from ...protocol.errors import KafkaError

logger = logging.getLogger(__name__)


class AutoCommit:
    """A timer that awaits the consumer's `commit` at each interval."""

    def __init__(self, interval_ms: int, commit: Callable[[], Awaitable[None]]) -> None:
        self._interval_s = interval_ms / 1000
        self._commit = commit
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to commit the consumer's offsets at intervals."""
        self._task = asyncio.ensure_future(self._every_interval())

    async def stop(self) -> None:
        """Commit the consumer's offsets a last time, and end the timer. A failure is logged."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        try:
            await self._commit()
        except KafkaError as error:
            logger.warning(
                "the last automatic commit failed; who reads on may begin with records read here: %s", error
            )

    async def now(self) -> None:
        """Commit. A failure is only logged, since the next commit includes these offsets."""
        try:
            await self._commit()
        except KafkaError as error:
            logger.info("an automatic commit failed: %s", error)

    async def _every_interval(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            await self.now()

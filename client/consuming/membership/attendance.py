"""A check that the program asks for records within `max_poll_interval_ms`.

A member of a group that does not read holds its partitions back from members that would.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from ..record_iterator import RecordIterator

logger = logging.getLogger(__name__)


class Attendance:
    """A watch over the intervals between the reads of one consumer's program. A program that waits in a read is
    present, however long the wait."""

    def __init__(self, unread: RecordIterator, max_away_ms: int) -> None:
        self.max_away_ms = max_away_ms
        self.away = False
        """True after the program was found missing, until its next read."""
        self._unread = unread
        self._reads = 0
        self._seen_s = 0.0
        self._back = asyncio.Event()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Return a context manager for a read, during which the program is present."""
        self._reads += 1
        self.away = False
        self._back.set()
        try:
            yield
        finally:
            self._reads -= 1
            self.begin()

    def begin(self) -> None:
        """Note that the program is present now, so that `max_poll_interval_ms` begins again."""
        self._seen_s = asyncio.get_running_loop().time()

    def missing(self) -> bool:
        """Return whether the program has been away for too long.

        Call it regularly: it also notices the reads that found a buffered record since its last call.
        """
        if self._reads or self._unread.came_back():
            self.begin()
        self.away = asyncio.get_running_loop().time() - self._seen_s > self.max_away_ms / 1000
        if self.away:
            self._back.clear()
        return self.away

    def warn(self, group_id: str) -> None:
        """Log a warning that the consumer leaves its group, since the program does not read, with the remedies."""
        logger.warning(
            "group %r: nothing was read for longer than max_poll_interval_ms (%d ms), so this consumer leaves the "
            "group and others get its partitions; the next read joins again. Read more often, fewer records at a time "
            "(max_poll_records), or raise max_poll_interval_ms",
            group_id,
            self.max_away_ms,
        )

    async def present(self) -> None:
        """Wait until the program reads again."""
        while self.away:
            await self._back.wait()

"""Whether the program comes back for records in time (`max_poll_interval_ms`): a member of a group that does not keeps
its partitions from those who would read them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from ..record_iterator import RecordIterator

logger = logging.getLogger(__name__)


class Attendance:
    """Of one consumer. Who waits in a read is there, however long that takes."""

    def __init__(self, unread: RecordIterator, max_away_ms: int) -> None:
        self.max_away_ms = max_away_ms
        self.away = False
        """It was found missing, and has not come back since."""
        self._unread = unread
        self._reads = 0
        self._seen_s = 0.0
        self._back = asyncio.Event()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Around what waits for records."""
        self._reads += 1
        self.away = False
        self._back.set()
        try:
            yield
        finally:
            self._reads -= 1
            self.begin()

    def begin(self) -> None:
        """It is there now."""
        self._seen_s = asyncio.get_running_loop().time()

    def missing(self) -> bool:
        """Whether it has been away for too long. To be asked from time to time: a read that had its record at hand is
        noticed only then."""
        if self._reads or self._unread.came_back():
            self.begin()
        self.away = asyncio.get_running_loop().time() - self._seen_s > self.max_away_ms / 1000
        if self.away:
            self._back.clear()
        return self.away

    def warn(self, group_id: str) -> None:
        """Tell what follows, and what to do about it."""
        logger.warning(
            "group %r: nothing was read for longer than max_poll_interval_ms (%d ms), so this consumer leaves the "
            "group and others get its partitions; the next read joins again. Read more often, fewer records at a time "
            "(max_poll_records), or raise max_poll_interval_ms",
            group_id,
            self.max_away_ms,
        )

    async def present(self) -> None:
        """Return once it is there."""
        while self.away:
            await self._back.wait()

"""The steps of a read. `Consumer` takes them, and so do facades: `one` is for every thread, the rest for the event
loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from ..records import ConsumerRecord, TopicPartition
from .fetcher import Fetcher
from .inbox import Inbox
from .membership.attendance import Attendance
from .progress import ConsumerProgress
from .record_iterator import RecordPosition

RECORDS_AT_A_TIME = 2_000
"""Decoding them keeps the event loop."""
RECORDS_IN_A_ROW = 1_000
"""After so many others on the event loop have their turn."""


T = TypeVar("T")


class ColumnsToFill(Protocol):
    """What is fetched as columns."""

    @property
    def rows(self) -> int:
        """How many there are."""

    @property
    def starts(self) -> Mapping[TopicPartition, int]:
        """Where the rows of each partition begin."""

    def take(self) -> int:
        """Take what is there; how many rows there are now."""


class Reading:
    """Of one consumer."""

    def __init__(
        self,
        fetcher: Fetcher,
        inbox: Inbox,
        *,
        max_poll_records: int,
        max_poll_interval_ms: int,
        check_open: Callable[[], None],
        raise_failures: Callable[[], None],
    ) -> None:
        """`check_open` raises what keeps from reading, `raise_failures` what has to be told when nothing is there."""
        self.progress = ConsumerProgress(inbox)
        self.attendance = Attendance(inbox.unread, max_poll_interval_ms)
        self._fetcher = fetcher
        self._inbox = inbox
        self._max_poll_records = max_poll_records
        self._taken_in_a_row = 0
        self._check_open = check_open
        self._raise_failures = raise_failures

    def one(self) -> ConsumerRecord | None:
        """The next record of those that `refill` brought; the one before is finished."""
        return self._inbox.unread.take()

    async def refill(self, timeout_ms: float | None = None) -> bool:
        """Wait until there is something for `one`, at most so long; whether there is. Raises as `many`."""
        taken = await self._taken(set(), timeout_ms, self._max_poll_records)
        for records in taken.values():
            self._inbox.unread.add(records)
        return bool(taken)

    async def many(
        self, partitions: set[TopicPartition], timeout_ms: float | None, limit: int | None
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Up to `limit` records; those before are finished. Raises KafkaError."""
        self._inbox.unread.hand_out(())
        taken = await self._taken(partitions, timeout_ms, self._max_poll_records if limit is None else limit)
        self._inbox.unread.hand_out([records[0] for records in taken.values()])
        return taken

    async def columns(self, columns: ColumnsToFill, timeout_ms: float | None) -> None:
        """Fill these; what was given before is finished. Raises KafkaError."""
        self._inbox.unread.hand_out(())
        self._inbox.give_back(self._fetcher.assigned)  # in their order, where `one` was used before
        await self._poll(columns.take, timeout_ms)
        self._taken_in_a_row += columns.rows
        self._inbox.unread.hand_out([RecordPosition(*one, offset) for one, offset in columns.starts.items()])

    def finish(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """All that was handed out is finished, or what lies before these offsets, though nobody has come back for more.
        For every thread."""
        self._inbox.unread.finish(offsets)

    async def _taken(
        self, partitions: set[TopicPartition], timeout_ms: float | None, limit: int
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        limit = min(limit, RECORDS_AT_A_TIME)
        taken = await self._poll(lambda: self._inbox.take(partitions, limit), timeout_ms)
        self._taken_in_a_row += sum(map(len, taken.values()))
        return taken

    async def _poll(self, take: Callable[[], T], timeout_ms: float | None) -> T:
        """Return what `take` gives once that is something, or after `timeout_ms`. Raise a failure before anything is
        taken: partitions that always have records would hide the failure of another one for ever."""
        self._check_open()
        self._raise_failures()
        loop = asyncio.get_running_loop()
        deadline = None if timeout_ms is None else loop.time() + timeout_ms / 1000
        with self.attendance.reading():
            while True:
                if self._taken_in_a_row >= RECORDS_IN_A_ROW:
                    # As long as there is something to take, nothing else here lets others run.
                    self._taken_in_a_row = 0
                    await asyncio.sleep(0)
                self._check_open()
                taken = take()
                if taken:
                    return taken
                self._raise_failures()
                left = None if deadline is None else deadline - loop.time()
                if left is not None and left <= 0:
                    await asyncio.sleep(0)  # who asks again and again lets the fetches go on
                    return taken
                await self._fetcher.wait(left)

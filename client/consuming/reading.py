"""The steps of a read, taken by `Consumer` and by facades: `one` may be called by any thread, the rest on the event
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
"""The limit of records per read, since decoding blocks the event loop."""
RECORDS_IN_A_ROW = 1_000
"""The number of records after which other tasks of the event loop get a turn."""


T = TypeVar("T")


class ColumnsToFill(Protocol):
    """The columns that a read fills with fetched records, one row each."""

    @property
    def rows(self) -> int:
        """The number of rows (records) taken so far."""

    @property
    def starts(self) -> Mapping[TopicPartition, int]:
        """The offset of the first row of each partition."""

    def take(self) -> int:
        """Take the buffered records as rows; return the number of rows taken so far."""


class Reading:
    """The reads of one consumer: they wait for records, hand them out, and mark earlier records as finished."""

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
        """Create the reading side of a consumer.

        `check_open` raises if the consumer cannot read. `raise_failures` raises pending failures before and between
        reads.
        """
        self.progress = ConsumerProgress(inbox)
        self.attendance = Attendance(inbox.unread, max_poll_interval_ms)
        self._fetcher = fetcher
        self._inbox = inbox
        self._max_poll_records = max_poll_records
        self._taken_in_a_row = 0
        self._check_open = check_open
        self._raise_failures = raise_failures

    def one(self) -> ConsumerRecord | None:
        """Return the next record that `refill` brought, None if there is none; the record returned before counts as
        finished."""
        return self._inbox.unread.take()

    async def refill(self, timeout_ms: float | None = None) -> bool:
        """Wait, at most `timeout_ms`, for records for `one`; return whether there are some. Raises like `many`."""
        taken = await self._taken(set(), timeout_ms, self._max_poll_records)
        for records in taken.values():
            self._inbox.unread.add(records)
        return bool(taken)

    async def many(
        self, partitions: set[TopicPartition], timeout_ms: float | None, limit: int | None
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Return up to `limit` records; all records returned before count as finished. Raises KafkaError."""
        self._inbox.unread.hand_out(())
        taken = await self._taken(partitions, timeout_ms, self._max_poll_records if limit is None else limit)
        self._inbox.unread.hand_out([records[0] for records in taken.values()])
        return taken

    async def columns(self, columns: ColumnsToFill, timeout_ms: float | None) -> None:
        """Fill these columns with fetched records; all records returned before count as finished. Raises KafkaError."""
        self._inbox.unread.hand_out(())
        self._inbox.give_back(self._fetcher.assigned)  # keeps the order of records if `one` was used before
        await self._poll(columns.take, timeout_ms)
        self._taken_in_a_row += columns.rows
        self._inbox.unread.hand_out(
            [RecordPosition(*partition, offset) for partition, offset in columns.starts.items()]
        )

    def finish(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Mark all records handed out as finished, or only the records before these offsets.

        Otherwise they would be finished at the next read. Any thread may call it.
        """
        self._inbox.unread.finish(offsets)

    async def _taken(
        self, partitions: set[TopicPartition], timeout_ms: float | None, limit: int
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        limit = min(limit, RECORDS_AT_A_TIME)
        taken = await self._poll(lambda: self._inbox.take(partitions, limit), timeout_ms)
        self._taken_in_a_row += sum(map(len, taken.values()))
        return taken

    async def _poll(self, take: Callable[[], T], timeout_ms: float | None) -> T:
        """Return the result of `take` once it is not empty, or after `timeout_ms`.

        Failures are raised before records are taken: partitions that always have records would otherwise hide the
        failure of another one for ever.
        """
        self._check_open()
        self._raise_failures()
        loop = asyncio.get_running_loop()
        deadline = None if timeout_ms is None else loop.time() + timeout_ms / 1000
        with self.attendance.reading():
            while True:
                if self._taken_in_a_row >= RECORDS_IN_A_ROW:
                    # While there are records to take, no other await here yields to the loop.
                    self._taken_in_a_row = 0
                    await asyncio.sleep(0)
                self._check_open()
                taken = take()
                if taken:
                    return taken
                self._raise_failures()
                left = None if deadline is None else deadline - loop.time()
                if left is not None and left <= 0:
                    await asyncio.sleep(0)  # lets the fetches of a busy polling caller go on
                    return taken
                await self._fetcher.wait(left)

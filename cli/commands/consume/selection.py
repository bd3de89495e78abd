"""The choice of the records that are printed: by filters, by the ends of partitions, and by the count of `-c`."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from operator import attrgetter

from ....client.record_filters import RecordTest
from ....client.records import ConsumerRecord, TopicPartition

RECORDS_AT_A_TIME = 500


class RecordSelection:
    """The choice of the records that are printed, with counts of the records looked at and of those that match.

    `before_end` returns the records before the end of their partition. A record must pass all `tests`. `count` is the
    most records to print, None for no limit.
    """

    def __init__(
        self,
        before_end: Callable[[TopicPartition, list[ConsumerRecord]], list[ConsumerRecord]],
        tests: Sequence[RecordTest] = (),
        count: int | None = None,
    ) -> None:
        self._before_end, self._tests, self._left = before_end, tests, count
        self.looked_at = 0
        self.matched = 0

    @property
    def is_search(self) -> bool:
        """True if there are filters."""
        return bool(self._tests)

    @property
    def is_complete(self) -> bool:
        """True once the count is reached."""
        return self._left == 0

    @property
    def records_max(self) -> int | None:
        """The most records to read at a time; None for no limit."""
        if self._left is None:
            return None
        return RECORDS_AT_A_TIME if self._tests else min(self._left, RECORDS_AT_A_TIME)

    def take(
        self, partition: TopicPartition, records: list[ConsumerRecord]
    ) -> tuple[list[ConsumerRecord], int | None]:
        """Return the consumed records of a partition that are printed, and the offset of the first unread record.

        The offset is None if all records were looked at. Otherwise none of the further records is wanted.
        """
        looked_at = self._before_end(partition, records)
        chosen = looked_at
        for test in self._tests:
            chosen = [record for record in chosen if test(record, None)]
        if self._left is not None and len(chosen) >= self._left:
            chosen = chosen[: self._left]
            looked_at = looked_at[: _after(looked_at, chosen[-1])] if chosen else []
        if self._left is not None:
            self._left -= len(chosen)
        self.looked_at += len(looked_at)
        self.matched += len(chosen)
        return chosen, records[len(looked_at)].offset if len(looked_at) < len(records) else None


def _after(records: list[ConsumerRecord], record: ConsumerRecord) -> int:
    """Return the index behind a record in a list of records."""
    return bisect_right(records, record.offset, key=attrgetter("offset"))

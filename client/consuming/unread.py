"""Records between the fetcher and a caller who takes one at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable
from threading import Lock

from .fetched import ConsumerRecord, TopicPartition


class Unread:
    """Records that were taken from the fetcher, and that the caller has not seen: the position of their partitions.

    A thread other than the event loop's may take from it, so that it need not wait for the loop with every record.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._records: deque[ConsumerRecord] = deque()

    def add(self, records: Iterable[ConsumerRecord]) -> None:
        """What comes after those that are there."""
        with self._lock:
            self._records.extend(records)

    def take(self) -> ConsumerRecord | None:
        """The next one."""
        with self._lock:
            return self._records.popleft() if self._records else None

    def take_some(
        self, of: Callable[[TopicPartition], bool], limit: int
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Up to `limit`, of those partitions alone."""
        taken: dict[TopicPartition, list[ConsumerRecord]] = {}
        with self._lock:
            left = deque[ConsumerRecord]()
            for one in self._records:
                partition = TopicPartition(one.topic, one.partition)
                if limit > 0 and of(partition):
                    taken.setdefault(partition, []).append(one)
                    limit -= 1
                else:
                    left.append(one)
            self._records = left
        return taken

    def __len__(self) -> int:
        return len(self._records)

    def keep(self, partitions: Container[tuple[str, int]]) -> None:
        """Forget those of other partitions."""
        with self._lock:
            self._records = deque(one for one in self._records if (one.topic, one.partition) in partitions)

    def drop(self, partitions: Container[tuple[str, int]]) -> dict[TopicPartition, int]:
        """Forget those of these partitions; the offset of the first of each."""
        first: dict[TopicPartition, int] = {}
        with self._lock:
            kept = deque[ConsumerRecord]()
            for one in self._records:
                if (one.topic, one.partition) in partitions:
                    first.setdefault(TopicPartition(one.topic, one.partition), one.offset)
                else:
                    kept.append(one)
            self._records = kept
        return first

    def positions(self) -> dict[TopicPartition, int]:
        """The offset of the first record of each partition."""
        found: dict[TopicPartition, int] = {}
        with self._lock:
            for one in self._records:
                found.setdefault(TopicPartition(one.topic, one.partition), one.offset)
        return found

"""Records between the fetcher and a caller who takes one at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable
from threading import Lock

from .fetched import ConsumerRecord, TopicPartition


class Unread:
    """Records that were taken from the fetcher, and that the caller has not seen: the position of their partitions.

    A thread other than the event loop's may take from it, so that it need not wait for the loop with every record. All
    else is the loop's: the lock is between the two, and the deque is one and the same for good.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._records: deque[ConsumerRecord] = deque()
        self.take_on_loop = self._records.popleft
        """`take` for the loop's own thread, where nobody else changes anything meanwhile. Raises IndexError when there
        is none."""

    def add(self, records: Iterable[ConsumerRecord]) -> None:
        """What comes after those that are there."""
        with self._lock:
            self._records.extend(records)

    def take(self) -> ConsumerRecord | None:
        """The next one."""
        with self._lock:
            return self._records.popleft() if self._records else None

    def __len__(self) -> int:
        return len(self._records)

    def keep(self, partitions: Container[tuple[str, int]]) -> None:
        """Forget those of other partitions."""
        with self._lock:
            self._replace([one for one in self._records if (one.topic, one.partition) in partitions])

    def drop(self, partitions: Container[tuple[str, int]]) -> dict[TopicPartition, int]:
        """Forget those of these partitions; the offset of the first of each."""
        first: dict[TopicPartition, int] = {}
        with self._lock:
            kept: list[ConsumerRecord] = []
            for one in self._records:
                if (one.topic, one.partition) in partitions:
                    first.setdefault(TopicPartition(one.topic, one.partition), one.offset)
                else:
                    kept.append(one)
            self._replace(kept)
        return first

    def positions(self) -> dict[TopicPartition, int]:
        """The offset of the first record of each partition."""
        found: dict[TopicPartition, int] = {}
        with self._lock:
            for one in self._records:
                found.setdefault(TopicPartition(one.topic, one.partition), one.offset)
        return found

    def _replace(self, kept: list[ConsumerRecord]) -> None:
        self._records.clear()
        self._records.extend(kept)

"""Records between the fetcher and a caller who takes one at a time, and those that the caller has in hand."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping
from threading import Lock
from typing import NamedTuple, Protocol

from ..records import ConsumerRecord, TopicPartition


class RecordPosition(NamedTuple):
    """Where a record stands: the first of a partition that is in hand."""

    topic: str
    partition: int
    offset: int


class _Placed(Protocol):
    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...


class RecordIterator:
    """Records that were taken from the fetcher, and that the caller has not seen: the position of their partitions.

    What the caller has seen is in its hands until it comes back for more. A thread other than the event loop's may take
    from here, so that it need not wait for the loop with every record. All else is the loop's: the lock is between the
    two, and the deque is one and the same for good.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._records: deque[ConsumerRecord] = deque()
        self._pop = self._records.popleft
        self._last: ConsumerRecord | None = None  # in hand, where it was taken alone
        self._in_hand: Iterable[_Placed] = ()  # otherwise
        self._came_back = False
        self._seen: ConsumerRecord | None = None  # `_last` when that was asked

    def add(self, records: Iterable[ConsumerRecord]) -> None:
        """What comes after those that are there."""
        with self._lock:
            self._records.extend(records)

    def take(self) -> ConsumerRecord | None:
        """The next one; what was in hand before is finished."""
        with self._lock:
            self._came_back = True
            self._last = self._records.popleft() if self._records else None
            self._in_hand = ()
            return self._last

    def take_on_loop(self) -> ConsumerRecord:
        """`take` for the loop's own thread, where nobody else changes anything meanwhile. Raises IndexError when there
        is none."""
        self._last = record = self._pop()
        return record

    def take_some(
        self, wanted: Callable[[TopicPartition], bool], limit: int
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """The first of those of the partitions that are `wanted`, up to `limit`."""
        taken: dict[TopicPartition, list[ConsumerRecord]] = {}
        with self._lock:
            kept: list[ConsumerRecord] = []
            for one in self._records:
                where = TopicPartition(one.topic, one.partition)
                if limit > 0 and wanted(where):
                    taken.setdefault(where, []).append(one)
                    limit -= 1
                else:
                    kept.append(one)
            self._replace(kept)
        return taken

    def __len__(self) -> int:
        return len(self._records)

    def keep(self, partitions: Container[tuple[str, int]]) -> None:
        """Forget those of other partitions."""
        with self._lock:
            self._replace([one for one in self._records if (one.topic, one.partition) in partitions])
            self._in_hand = [one for one in self._held() if (one.topic, one.partition) in partitions]
            self._last = None

    def drop(self, partitions: Container[tuple[str, int]]) -> dict[TopicPartition, int]:
        """Forget those of these partitions that were not seen; the offset of the first of each."""
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

    # what the caller has in hand

    def hand_out(self, first: Iterable[_Placed]) -> None:
        """The caller is given what begins with these, past what is here; what was in hand before is finished."""
        with self._lock:
            self._came_back = True
            self._last = None
            self._in_hand = first

    def finish(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """The caller has said that all in hand is finished, or what lies before these offsets."""
        with self._lock:
            held, self._last = self._held(), None
            self._in_hand = (
                [
                    RecordPosition(*where, max(one.offset, offsets.get(where, 0)))
                    for one in held
                    for where in [TopicPartition(one.topic, one.partition)]
                ]
                if offsets is not None
                else ()
            )

    def in_hand(self) -> list[tuple[TopicPartition, int]]:
        """The offset of the first of each partition."""
        with self._lock:
            return [(TopicPartition(one.topic, one.partition), one.offset) for one in self._held()]

    def came_back(self) -> bool:
        """Whether the caller has, since this was asked before."""
        with self._lock:
            came_back = self._came_back or self._last is not self._seen
            self._came_back, self._seen = False, self._last
        return came_back

    # inside

    def _held(self) -> Iterable[_Placed]:
        return self._in_hand if self._last is None else (self._last,)

    def _replace(self, kept: list[ConsumerRecord]) -> None:
        self._records.clear()
        self._records.extend(kept)

"""Records between the fetcher and a caller who takes one at a time, and records that the caller still processes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping
from threading import Lock
from typing import NamedTuple, Protocol

from ..records import ConsumerRecord, TopicPartition


class RecordPosition(NamedTuple):
    """The place of a partition's first record that the caller still processes."""

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
    """Fetched records that the caller has not seen; they determine the positions of their partitions.

    Records that the caller has seen count as held by it until it asks for more. A thread other than the event loop's
    may take records, so that it need not wait for the loop with every record. All other methods belong to the loop. The
    lock protects the state between the two threads, and the deque is never replaced.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._records: deque[ConsumerRecord] = deque()
        self._pop = self._records.popleft
        self._last: ConsumerRecord | None = None  # the record held by the caller, if it was taken alone
        self._in_hand: Iterable[_Placed] = ()  # the records held by the caller otherwise
        self._came_back = False
        self._seen: ConsumerRecord | None = None  # `_last` at the previous call of `came_back`

    def add(self, records: Iterable[ConsumerRecord]) -> None:
        """Append records."""
        with self._lock:
            self._records.extend(records)

    def take(self) -> ConsumerRecord | None:
        """Return the next record, None if there is none; the records held before are finished."""
        with self._lock:
            self._came_back = True
            self._last = self._records.popleft() if self._records else None
            self._in_hand = ()
            return self._last

    def take_on_loop(self) -> ConsumerRecord:
        """Return the next record, for the loop's thread, where no other change can happen meanwhile.

        Raises IndexError if there is none.
        """
        self._last = record = self._pop()
        return record

    def take_some(
        self, wanted: Callable[[TopicPartition], bool], limit: int
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Return up to `limit` records, the first of the partitions that are `wanted`."""
        taken: dict[TopicPartition, list[ConsumerRecord]] = {}
        with self._lock:
            kept: list[ConsumerRecord] = []
            for record in self._records:
                where = TopicPartition(record.topic, record.partition)
                if limit > 0 and wanted(where):
                    taken.setdefault(where, []).append(record)
                    limit -= 1
                else:
                    kept.append(record)
            self._replace(kept)
        return taken

    def __len__(self) -> int:
        return len(self._records)

    def keep(self, partitions: Container[tuple[str, int]]) -> None:
        """Forget the unseen and held records of all partitions except these."""
        with self._lock:
            self._replace(
                [record for record in self._records if (record.topic, record.partition) in partitions]
            )
            self._in_hand = [
                record for record in self._held() if (record.topic, record.partition) in partitions
            ]
            self._last = None

    def drop(self, partitions: Container[tuple[str, int]]) -> dict[TopicPartition, int]:
        """Forget unseen records of these partitions; return the offset of the first one of each."""
        first: dict[TopicPartition, int] = {}
        with self._lock:
            kept: list[ConsumerRecord] = []
            for record in self._records:
                if (record.topic, record.partition) in partitions:
                    first.setdefault(TopicPartition(record.topic, record.partition), record.offset)
                else:
                    kept.append(record)
            self._replace(kept)
        return first

    def positions(self) -> dict[TopicPartition, int]:
        """Return the offset of the first unseen record of each partition."""
        found: dict[TopicPartition, int] = {}
        with self._lock:
            for record in self._records:
                found.setdefault(TopicPartition(record.topic, record.partition), record.offset)
        return found

    # records that the caller holds

    def hand_out(self, first: Iterable[_Placed]) -> None:
        """Note that the caller gets records that are not stored here, beginning with `first`, one of each partition.
        All records held before are finished."""
        with self._lock:
            self._came_back = True
            self._last = None
            self._in_hand = first

    def finish(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Note that the caller has finished all records that it holds, or the records before these offsets."""
        with self._lock:
            held, self._last = self._held(), None
            self._in_hand = (
                [
                    RecordPosition(*where, max(record.offset, offsets.get(where, 0)))
                    for record in held
                    for where in [TopicPartition(record.topic, record.partition)]
                ]
                if offsets is not None
                else ()
            )

    def in_hand(self) -> list[tuple[TopicPartition, int]]:
        """Return the offset of the first record that the caller holds, of each partition."""
        with self._lock:
            return [
                (TopicPartition(record.topic, record.partition), record.offset) for record in self._held()
            ]

    def came_back(self) -> bool:
        """Return whether the caller has asked for records since the last call."""
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

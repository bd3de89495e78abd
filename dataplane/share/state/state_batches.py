"""Ranges of offsets with durable states, combined as in Kafka's state coordinator."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from ..states import DurableState, StateBatch, add_batch


def _first(batch: StateBatch) -> int:
    return batch.first


def _last(batch: StateBatch) -> int:
    return batch.last


def stronger(batch: StateBatch, other: StateBatch) -> StateBatch:
    """Return the batch whose state an offset in both batches gets.

    A finished state wins, then the larger delivery count, then the larger state. So a repeated or late write changes
    nothing. Kafka compares the delivery count first, and leaders there store a count with finished states, too.
    """
    return max(batch, other, key=_rank)


def _rank(batch: StateBatch) -> tuple[bool, int, int]:
    return batch.state is not DurableState.AVAILABLE, batch.delivery_count, batch.state


class StateBatches:
    """The batches of a share-partition, in the order of offsets. They do not overlap, and neighbours that touch have
    different states. A change costs a binary search and the touched batches."""

    __slots__ = ("_batches",)

    def __init__(self, batches: Iterable[StateBatch] = ()) -> None:
        self._batches: list[StateBatch] = []
        for batch in batches:
            self.add(batch)

    def as_tuple(self) -> tuple[StateBatch, ...]:
        """Return the batches as they are now."""
        return tuple(self._batches)

    def add(self, batch: StateBatch) -> None:
        """Combine the batch with the batches that it overlaps or touches."""
        begin = bisect_left(self._batches, batch.first - 1, key=_last)
        behind = bisect_right(self._batches, batch.last + 1, key=_first)
        combined: list[StateBatch] = []
        # First offset of the new batch that has no place yet.
        position = batch.first
        for old in self._batches[begin:behind]:
            _add_part(combined, batch, position, min(batch.last, old.first - 1))
            _add_part(combined, old, old.first, min(old.last, batch.first - 1))
            _add_part(combined, stronger(old, batch), max(old.first, batch.first), min(old.last, batch.last))
            _add_part(combined, old, max(old.first, batch.last + 1), old.last)
            position = max(position, old.last + 1)
        _add_part(combined, batch, position, batch.last)
        self._batches[begin:behind] = combined

    def drop_below(self, offset: int) -> None:
        """Remove all offsets below an offset."""
        behind = bisect_left(self._batches, offset, key=_last)
        del self._batches[:behind]
        if self._batches and self._batches[0].first < offset:
            self._batches[0] = self._batches[0]._replace(first=offset)


def _add_part(batches: list[StateBatch], batch: StateBatch, first: int, last: int) -> None:
    if first <= last:
        add_batch(batches, batch._replace(first=first, last=last))

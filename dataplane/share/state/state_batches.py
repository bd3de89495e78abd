"""Ranges of offsets with durable states, combined as in Kafka's state coordinator."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence

from ..states import DurableState, StateBatch, add_batch

_PASSED_MAX = 8
"""Maximum number of batches for each new batch that one walk over all new batches may pass."""


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
        self.add_all(batches)

    def as_tuple(self) -> tuple[StateBatch, ...]:
        """Return the batches as they are now."""
        return tuple(self._batches)

    def add_all(self, batches: Iterable[StateBatch]) -> None:
        """Combine batches with the batches that they overlap or touch."""
        for ascending in _ascending(batches):
            begin, behind = self._touched(ascending[0].first, ascending[-1].last)
            if behind - begin <= _PASSED_MAX * len(ascending):
                self._batches[begin:behind] = _combined(self._batches[begin:behind], ascending)
                continue
            for batch in ascending:
                begin, behind = self._touched(batch.first, batch.last)
                self._batches[begin:behind] = _combined(self._batches[begin:behind], [batch])

    def _touched(self, first: int, last: int) -> tuple[int, int]:
        """Return the index of the first batch that a range overlaps or touches, and the index behind the last."""
        return (
            bisect_left(self._batches, first - 1, key=_last),
            bisect_right(self._batches, last + 1, key=_first),
        )

    def drop_below(self, offset: int) -> None:
        """Remove all offsets below an offset."""
        behind = bisect_left(self._batches, offset, key=_last)
        del self._batches[:behind]
        if self._batches and self._batches[0].first < offset:
            self._batches[0] = self._batches[0]._replace(first=offset)


def _ascending(batches: Iterable[StateBatch]) -> Iterator[list[StateBatch]]:
    """Yield the batches in stretches whose batches are in the order of offsets, and do not overlap."""
    stretch: list[StateBatch] = []
    for batch in batches:
        if stretch and batch.first <= stretch[-1].last:
            yield stretch
            stretch = []
        stretch.append(batch)
    if stretch:
        yield stretch


def _combined(old: Sequence[StateBatch], new: Sequence[StateBatch]) -> list[StateBatch]:
    """Return the batches of two ascending sequences as one. Offsets of both have the stronger state."""
    combined: list[StateBatch] = []
    olds, news = iter(old), iter(new)
    present, added = next(olds, None), next(news, None)
    while present is not None and added is not None:
        if present.last < added.first:
            add_batch(combined, present)
            present = next(olds, None)
        elif added.last < present.first:
            add_batch(combined, added)
            added = next(news, None)
        else:
            both_from = max(present.first, added.first)
            last = min(present.last, added.last)
            if present.first < both_from:
                add_batch(combined, present._replace(last=both_from - 1))
            elif added.first < both_from:
                add_batch(combined, added._replace(last=both_from - 1))
            add_batch(combined, stronger(present, added)._replace(first=both_from, last=last))
            present = present._replace(first=last + 1) if last < present.last else next(olds, None)
            added = added._replace(first=last + 1) if last < added.last else next(news, None)
    for batch, others in ((present, olds), (added, news)):
        if batch is not None:
            add_batch(combined, batch)
        for following in others:
            add_batch(combined, following)
    return combined

"""Slices for executors: a micro-batch, or a batch query, split into tasks. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from ...client.records import TopicPartition
from ...client.transactions.cut_filter import Window


class Range(NamedTuple):
    """A range of offsets to read from one partition."""

    partition: TopicPartition
    start: int
    end: int
    window: Window | None
    """Window of the micro-batch with isolation=atomic, see cut_filter. `start` may lie before it."""
    topic_id: str = ""
    """Id in hexadecimal of the topic that the offsets belong to; empty if the cluster does not report ids."""

    @property
    def size(self) -> int:
        """Number of offsets."""
        return max(0, self.end - self.start)


def split(
    ranges: Iterable[Range], *, at_least: int | None = None, records_max: int | None = None
) -> list[Range]:
    """Return one slice for each range that is not empty, or more.

    No slice has more than `records_max` offsets. If there are fewer than `at_least` slices, ranges are split in
    proportion to their size, as in Spark's own source.
    """
    slices = [range_ for range_ in ranges if range_.size]
    if records_max is not None:
        slices = [part for range_ in slices for part in _parts(range_, -(-range_.size // records_max))]
    if at_least is None or len(slices) >= at_least:
        return slices
    total = sum(range_.size for range_ in slices)
    left = at_least
    result: list[Range] = []
    for range_ in sorted(slices, key=lambda each: each.size):
        parts = min(range_.size, max(1, round(left * range_.size / total)))
        result += _parts(range_, parts)
        left, total = left - parts, total - range_.size
    return sorted(result, key=lambda each: (each.partition, each.start))


def _parts(range_: Range, count: int) -> Sequence[Range]:
    ends = [range_.start + range_.size * part // count for part in range(count + 1)]
    return [range_._replace(start=start, end=end) for start, end in pairwise(ends) if start < end]

"""Chains of segments, which have the records of a partition at a cut without a hole. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass

from .cut_file import BackedPartition
from .names import SegmentName


@dataclass(frozen=True, slots=True)
class Chain:
    """The segments of a partition at a cut, by offset, and the offsets that no segment has."""

    segments: tuple[SegmentName, ...]
    holes: tuple[tuple[int, int], ...]
    """Ranges of offsets (first, end) that should be in a segment. A sound backup has none."""


def chain_of(partition: BackedPartition, found: Iterable[SegmentName]) -> Chain:
    """Return the chain of a partition at a cut. `found` has the segments that belong to the cut.

    The chain is followed from its end to the start of the log. A run whose store did not answer repeats a segment under
    the name of a later cut, perhaps with another end, and goes on after it. So the end of a segment tells the previous
    segment, and of several the one of the latest cut.
    """
    by_end: dict[int, SegmentName] = {}
    for segment in found:
        known = by_end.get(segment.end)
        if segment.place.generation == partition.generation and (known is None or known.cut < segment.cut):
            by_end[segment.end] = segment
    ends = sorted(by_end)
    taken: list[SegmentName] = []
    holes: list[tuple[int, int]] = []
    reached = partition.end
    while reached > partition.start:
        if reached not in by_end:
            before = bisect_left(ends, reached)
            lower = max(ends[before - 1], partition.start) if before else partition.start
            holes.append((lower, reached))
            reached = lower
            continue
        taken.append(by_end[reached])
        reached = taken[-1].first
    return Chain(tuple(reversed(taken)), tuple(reversed(holes)))


def epoch_end(partition: BackedPartition, epoch: int) -> tuple[int, int]:
    """Return the largest leader epoch of the copied records up to `epoch`, and the offset at which it ends; -1 and -1
    if there is none."""
    known = [pair for pair in partition.lineage if pair[0] <= epoch]
    if not known:
        return -1, -1
    later = (start for found, start in partition.lineage if found > epoch)
    return known[-1][0], next(later, partition.end)


def extended(
    lineage: tuple[tuple[int, int], ...], epochs: Iterable[tuple[int, int]]
) -> tuple[tuple[int, int], ...]:
    """Return the leader epochs of a partition with those of copied batches: pairs of an epoch and an offset."""
    for epoch, offset in epochs:
        if not lineage or epoch > lineage[-1][0]:
            lineage = (*lineage, (epoch, offset))
    return lineage

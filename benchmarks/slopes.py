"""Whether readings rise over time: a line through medians, and how far it rises beside how much they scatter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

BINS = 10
"""A line goes through the medians of so many stretches of time: one odd reading in a stretch does not count."""
SCATTERS = 3.0
"""A rise of fewer standard deviations around the line may be chance."""
WARM_UP = 1 / 3
"""The share of the time in which caches fill and first things are made."""

Reading = tuple[float, float]
"""When, in seconds, and what."""


@dataclass(frozen=True, slots=True)
class Line:
    """The line through readings: where it begins and ends, and how far their medians are from it."""

    first: float
    last: float
    seconds: float
    scatter: float

    @property
    def rise(self) -> float:
        """From one end to the other."""
        return self.last - self.first

    @property
    def per_hour(self) -> float:
        """How steep it is."""
        return self.rise / self.seconds * 3600 if self.seconds else 0.0

    def is_slope(self, allowed: float) -> bool:
        """Whether it rises by more than is allowed and than chance explains."""
        return self.rise > max(allowed, SCATTERS * self.scatter)


def without_warm_up(readings: Sequence[Reading]) -> list[Reading]:
    """What came after the first third of the time."""
    if not readings:
        return []
    begin = readings[0][0] + WARM_UP * (readings[-1][0] - readings[0][0])
    return [one for one in readings if one[0] >= begin]


def medians(readings: Sequence[Reading], bins: int = BINS) -> list[Reading]:
    """Of stretches that are equally long; those without readings are left out."""
    begin, end = readings[0][0], readings[-1][0]
    stretch = (end - begin) / bins or 1.0
    found: dict[int, list[Reading]] = {}
    for at_s, value in readings:
        found.setdefault(min(bins - 1, int((at_s - begin) / stretch)), []).append((at_s, value))
    return [(fmean(at for at, _ in some), median(value for _, value in some)) for some in found.values()]


def line(readings: Sequence[Reading]) -> Line | None:
    """With the least squares through the medians; None for fewer than three stretches, which tell nothing."""
    points = medians(readings) if readings else []
    if len(points) < 3:
        return None
    mean_s, mean = fmean(at for at, _ in points), fmean(value for _, value in points)
    spread = sum((at - mean_s) ** 2 for at, _ in points)
    steep = sum((at - mean_s) * (value - mean) for at, value in points) / spread
    off = sum((value - mean - steep * (at - mean_s)) ** 2 for at, value in points)
    begin, end = readings[0][0], readings[-1][0]
    return Line(
        mean + steep * (begin - mean_s),
        mean + steep * (end - mean_s),
        end - begin,
        math.sqrt(off / (len(points) - 2)),
    )

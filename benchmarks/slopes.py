"""Detects readings that rise over time: a line through medians, compared with their scatter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

BINS = 10
"""Number of equal stretches of time, whose medians the line goes through: a single outlier in a stretch does not
count.
"""
SCATTERS = 3.0
"""Standard deviations around the line below which a rise may be chance."""
WARM_UP = 1 / 3
"""Share of the time in which caches fill and first objects are made."""

Reading = tuple[float, float]
"""A time in seconds, and a value."""


@dataclass(frozen=True, slots=True)
class Line:
    """The line through readings: its ends, and the scatter of the medians around it."""

    first: float
    last: float
    seconds: float
    scatter: float

    @property
    def rise(self) -> float:
        """Rise from one end to the other."""
        return self.last - self.first

    @property
    def per_hour(self) -> float:
        """Slope per hour."""
        return self.rise / self.seconds * 3600 if self.seconds else 0.0

    def is_slope(self, allowed: float) -> bool:
        """Return whether the line rises by more than `allowed`, and by more than chance explains."""
        return self.rise > max(allowed, SCATTERS * self.scatter)


def without_warm_up(readings: Sequence[Reading]) -> list[Reading]:
    """Return the readings after the first third of the time."""
    if not readings:
        return []
    begin = readings[0][0] + WARM_UP * (readings[-1][0] - readings[0][0])
    return [reading for reading in readings if reading[0] >= begin]


def medians(readings: Sequence[Reading], bins: int = BINS) -> list[Reading]:
    """Return the medians of equally long stretches; stretches without readings are left out."""
    begin, end = readings[0][0], readings[-1][0]
    stretch = (end - begin) / bins or 1.0
    found: dict[int, list[Reading]] = {}
    for at_s, value in readings:
        found.setdefault(min(bins - 1, int((at_s - begin) / stretch)), []).append((at_s, value))
    return [(fmean(at for at, _ in some), median(value for _, value in some)) for some in found.values()]


def line(readings: Sequence[Reading]) -> Line | None:
    """Return the least-squares line through the medians; None for fewer than three stretches, which are too few."""
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

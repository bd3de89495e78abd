"""The history of a series of values, in several resolutions within a fixed amount of memory."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable

from ..bounds import POINTS_MAX
from ..charts import SPANS

Points = list[tuple[float, float | None]]
"""Points (seconds since 1970, value) in order of time. A value of None is a gap."""
Merge = Callable[[float, float, int], float]
"""A function that joins a value to the value of a point that already covers a number of samples."""


def mean(value: float, further: float, samples: int) -> float:
    """Return the mean of `further` and of `samples` values whose mean is `value`. It suits rates."""
    return value + (further - value) / (samples + 1)


def highest(value: float, further: float, samples: int) -> float:
    """Return the larger value, which suits numbers of faults: a coarse point still shows a short fault."""
    return max(value, further)


class SeriesHistory:
    """The values of a series, as at most POINTS_MAX points for each span of charts.

    A point of a longer span covers several samples: `merge` makes their common value.
    """

    __slots__ = ("_levels", "_merge")

    def __init__(self, merge: Merge = mean) -> None:
        self._merge = merge
        self._levels = [_Level(span_s / POINTS_MAX) for span_s in SPANS.values()]

    def note(self, at_s: float, value: float | None) -> None:
        """Record a sample. None begins a gap, as when the cluster does not answer, until the next value."""
        for level in self._levels:
            if value is None:
                level.begin_gap(at_s)
            else:
                level.note(at_s, value, self._merge)

    def points(self, span_s: float, now_s: float) -> Points:
        """Return the points of the `span_s` seconds before `now_s`, in the finest resolution that reaches so far."""
        level = next(
            (level for span, level in zip(SPANS.values(), self._levels, strict=True) if span >= span_s),
            self._levels[-1],
        )
        return level.points(now_s - span_s)


class _Level:
    """The points of one resolution. Each covers the samples of `step_s` seconds.

    A point has the time of its newest sample, so that a chart's line ends at the newest sample. Gaps shorter than
    `step_s` are left out.
    """

    __slots__ = ("_began_s", "_gap_s", "_samples", "_step_s", "_times", "_values")

    def __init__(self, step_s: float) -> None:
        self._step_s = step_s
        self._times, self._values = array("d"), array("d")
        self._began_s = -math.inf
        self._gap_s: float | None = None
        self._samples = 0

    def begin_gap(self, at_s: float) -> None:
        if self._gap_s is None:
            self._gap_s = at_s

    def note(self, at_s: float, value: float, merge: Merge) -> None:
        gap_s, self._gap_s = self._gap_s, None
        if at_s - self._began_s < self._step_s:
            self._values[-1] = merge(self._values[-1], value, self._samples)
            self._times[-1] = at_s
            self._samples += 1
            return
        if gap_s is not None and self._times and at_s - self._times[-1] >= self._step_s:
            self._append(gap_s, math.nan)
        self._append(at_s, value)
        self._began_s, self._samples = at_s, 1

    def points(self, from_s: float) -> Points:
        found: Points = [
            (at_s, None if math.isnan(value) else value)
            for at_s, value in zip(self._times, self._values, strict=True)
            if at_s >= from_s
        ]
        return found if self._gap_s is None else [*found, (self._gap_s, None)]

    def _append(self, at_s: float, value: float) -> None:
        self._times.append(at_s)
        self._values.append(value)
        if len(self._times) > POINTS_MAX:
            del self._times[0], self._values[0]

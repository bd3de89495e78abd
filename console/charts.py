"""Charts as SVG, drawn on the server from series. Pure.

The markup contains no colours and no styles, only classes: the style sheet defines their look for light and dark mode.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup, escape

from .formats import UNKNOWN, duration
from .formats import count as plain

CHART_S: Final = 600.0
"""Seconds that a chart of live values shows."""


COLOURS = 6
"""The number of lines that the style sheet distinguishes."""
LEAST = 1e-9
"""The value below which values are drawn as 0."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 8, 10, 22


@dataclass(frozen=True, slots=True)
class Series:
    """A named line of a chart: points (seconds since 1970, value) in order of time. A value of None is a gap."""

    name: str
    points: Sequence[tuple[float, float | None]]

    @property
    def last(self) -> float | None:
        """The newest value of the chart's line; None if there is none."""
        return self.points[-1][1] if self.points else None


def line_chart(
    title: str,
    series: Sequence[Series],
    *,
    now_s: float,
    span_s: float,
    width: int = 640,
    height: int = 180,
    say: Callable[[float], str] = plain,
) -> Markup:
    """Return an SVG chart with one line for each series, over the `span_s` seconds before `now_s`.

    The lowest value of the axis is 0; `say` formats a value as text.
    """
    known = [
        (at_s, value)
        for line in series
        for at_s, value in line.points
        if value is not None and math.isfinite(value) and at_s >= now_s - span_s
    ]
    top = ceiling(max((value for _, value in known), default=0.0))
    inner = (width - _LEFT - _RIGHT, height - _TOP - _BOTTOM)

    def place(at_s: float, value: float) -> tuple[float, float]:
        x = _LEFT + inner[0] * (1 - (now_s - at_s) / span_s)
        return x, _TOP + inner[1] * (1 - max(0.0, value) / top)

    description = "; ".join(
        f"{line.name} {say(line.last) if line.last is not None else 'not known'}" for line in series
    )
    lines = [
        f'<polyline class="line c{number % COLOURS}" points="{_points(run, place)}"/>'
        for number, line in enumerate(series)
        for run in _runs(line, now_s - span_s, now_s)
    ]
    return Markup(
        f'<svg class="chart" viewBox="0 0 {width} {height}" role="img">'
        f"<title>{escape(title)}</title><desc>{escape(description)}</desc>"
        + "".join(_grid(top, span_s, width, height, say))
        + "".join(lines)
        + ("" if known else _nothing(width, height))
        + "</svg>"
    )


def legend(series: Sequence[Series], say: Callable[[float], str] = plain) -> Markup:
    """Return the HTML legend of a chart: each series' name with its newest value, which `say` formats."""
    entries = "".join(
        f'<li><span class="key c{number % COLOURS}"></span>{escape(line.name)} '
        f"<b>{escape(say(line.last) if line.last is not None else UNKNOWN)}</b></li>"
        for number, line in enumerate(series)
    )
    return Markup(f'<ul class="legend">{entries}</ul>')


def ceiling(value: float) -> float:
    """Return the top of a chart's axis: the least of 1, 2, 5, 10, 20, ... (also fractions such as 0.5) that is not
    below the value."""
    if value <= LEAST or not math.isfinite(value):
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next((step * power for step in (1, 2, 5) if step * power >= value), 10 * power)


def _runs(series: Series, from_s: float, to_s: float) -> Iterator[list[tuple[float, float]]]:
    """Yield the uninterrupted runs of a series' points between its gaps, within the times `from_s` to `to_s`."""
    run: list[tuple[float, float]] = []
    for at_s, value in series.points:
        if value is not None and math.isfinite(value) and from_s <= at_s <= to_s:
            run.append((at_s, value))
        elif run:
            yield run
            run = []
    if run:
        yield run


def _points(run: Sequence[tuple[float, float]], place: Callable[[float, float], tuple[float, float]]) -> str:
    """Return the `points` attribute of an SVG line; `place` maps a point to coordinates.

    A single point becomes a short line, since it would be invisible.
    """
    places = [place(at_s, value) for at_s, value in run]
    if len(places) == 1:
        (x, y) = places[0]
        places = [(x - 1, y), (x + 1, y)]
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)


def _grid(top: float, span_s: float, width: int, height: int, say: Callable[[float], str]) -> Iterator[str]:
    for part in (0, 0.5, 1):
        y = _TOP + (height - _TOP - _BOTTOM) * (1 - part)
        if part == 0.5 and say(top * part) in (say(0.0), say(top)):
            continue  # There may be no whole number between two adjacent ones.
        yield f'<line class="grid" x1="{_LEFT}" x2="{width - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text class="tick right" x="{_LEFT - 6}" y="{y + 4:.1f}">{escape(say(top * part))}</text>'
    base = height - 6
    yield f'<text class="tick" x="{_LEFT}" y="{base}">{escape(duration(span_s))} ago</text>'
    yield f'<text class="tick right" x="{width - _RIGHT}" y="{base}">now</text>'


def _nothing(width: int, height: int) -> str:
    return f'<text class="tick middle" x="{width / 2:.0f}" y="{height / 2:.0f}">no values yet</text>'

"""Charts as SVG, drawn on the server from series. Pure.

The markup contains no colours and no styles, only classes: the style sheet defines their look for light and dark mode.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup, escape

from .formats import UNKNOWN, duration, moment
from .formats import count as plain

SPANS: Final = {"10m": 600.0, "1h": 3_600.0, "6h": 21_600.0, "24h": 86_400.0}
"""The spans of time that a chart can show, in seconds, by their names in addresses."""
SPAN: Final = next(iter(SPANS))
"""The span of a chart unless the page's address names another one."""
LEAST_S: Final = 30.0
"""The shortest time that a chart's axis covers, however young its history is."""
COLOURS = 6
"""The number of lines that the style sheet distinguishes."""
LEAST = 1e-9
"""The value below which values are drawn as 0."""
DECIMAL, KIB = 1_000.0, 1_024.0
"""The factors between units: of numbers, and of bytes."""
BANDS: Final = 24
"""The number of upright bands of a chart. Each shows its time and values while the mouse is over it."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 8, 10, 22


@dataclass(frozen=True, slots=True)
class Span:
    """The span of time that the charts of a page show.

    `name` is one of SPANS. `address` returns the URL of the page with another span.
    """

    name: str
    address: Callable[[str], str]

    @property
    def seconds(self) -> float:
        """The length of the span in seconds."""
        return SPANS[self.name]

    @property
    def names(self) -> Sequence[str]:
        """The names of all spans."""
        return tuple(SPANS)


@dataclass(frozen=True, slots=True)
class Series:
    """A named line of a chart: points (seconds since 1970, value) in order of time. A value of None is a gap."""

    name: str
    points: Sequence[tuple[float, float | None]]

    @property
    def last(self) -> float | None:
        """The newest value of the chart's line; None if there is none."""
        return self.points[-1][1] if self.points else None


@dataclass(frozen=True, slots=True)
class Chart:
    """An SVG chart of live values, with its title and legend."""

    title: str
    svg: Markup
    legend: Markup


def draw(
    title: str,
    series: Sequence[Series],
    *,
    now_s: float,
    span_s: float,
    say: Callable[[float], str] = plain,
    unit: float = DECIMAL,
) -> Chart | None:
    """Return a chart of series with its legend; None if no series has a value. `unit` is KIB for bytes."""
    if not any(value is not None for line in series for _, value in line.points):
        return None
    svg = line_chart(title, series, now_s=now_s, span_s=span_s, say=say, unit=unit)
    return Chart(title, svg, legend(series, say))


@dataclass(frozen=True, slots=True)
class _Frame:
    """The axes of a chart: `span_s` seconds that end at `now_s`, values up to `top`, and the size of the drawing."""

    now_s: float
    span_s: float
    top: float
    width: int
    height: int

    @property
    def inner_width(self) -> int:
        """The width without the margins."""
        return self.width - _LEFT - _RIGHT

    @property
    def inner_height(self) -> int:
        """The height without the margins."""
        return self.height - _TOP - _BOTTOM

    def place(self, at_s: float, value: float) -> tuple[float, float]:
        """Return the coordinates of a point."""
        x = _LEFT + self.inner_width * (1 - (self.now_s - at_s) / self.span_s)
        return x, _TOP + self.inner_height * (1 - max(0.0, value) / self.top)


def line_chart(
    title: str,
    series: Sequence[Series],
    *,
    now_s: float,
    span_s: float,
    width: int = 640,
    height: int = 180,
    say: Callable[[float], str] = plain,
    unit: float = DECIMAL,
) -> Markup:
    """Return an SVG chart with one line for each series, over at most the `span_s` seconds before `now_s`.

    The time axis begins with the first value, if the history is shorter than the span. The lowest value of the other
    axis is 0; `say` formats a value as text. `unit` is KIB for bytes.
    """
    known = [
        (at_s, value)
        for line in series
        for at_s, value in line.points
        if value is not None and math.isfinite(value) and now_s - span_s <= at_s <= now_s
    ]
    top = ceiling(max((value for _, value in known), default=0.0), unit)
    if known:
        span_s = min(span_s, max(LEAST_S, now_s - min(at_s for at_s, _ in known)))
    frame = _Frame(now_s, span_s, top, width, height)
    description = "; ".join(
        f"{line.name} {say(line.last) if line.last is not None else 'not known'}" for line in series
    )
    lines = [
        f'<polyline class="line c{number % COLOURS}" points="{_points(run, frame.place)}"/>'
        for number, line in enumerate(series)
        for run in _runs(line, now_s - span_s, now_s)
    ]
    return Markup(
        f'<svg class="chart" viewBox="0 0 {width} {height}" role="img">'
        f"<title>{escape(title)}</title><desc>{escape(description)}</desc>"
        + "".join(_grid(frame, say))
        + "".join(lines)
        + ("".join(_bands(series, frame, say)) if known else _nothing(width, height))
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


def ceiling(value: float, unit: float = DECIMAL) -> float:
    """Return the top of a chart's axis: the least of 1, 2, 5, 10, 20, ... (also fractions such as 0.5) that is not
    below the value. With the unit KIB it counts B, KiB, MiB and so on, so that labels of bytes are round."""
    if value <= LEAST or not math.isfinite(value):
        return 1.0
    scale = unit ** max(0, math.floor(math.log(value, unit)))
    if unit == KIB and value / scale > 1_000:  # 2,000 KiB would be no round number of MiB.
        scale *= unit
    power = 10.0 ** math.floor(math.log10(value / scale))
    return scale * next((step * power for step in (1, 2, 5) if step * power >= value / scale), 10 * power)


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


def _grid(frame: _Frame, say: Callable[[float], str]) -> Iterator[str]:
    right = frame.width - _RIGHT
    for part in (0, 0.5, 1):
        y = _TOP + frame.inner_height * (1 - part)
        if part == 0.5 and say(frame.top * part) in (say(0.0), say(frame.top)):
            continue  # There may be no whole number between two adjacent ones.
        yield f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text class="tick right" x="{_LEFT - 6}" y="{y + 4:.1f}">{escape(say(frame.top * part))}</text>'
    base, middle = frame.height - 6, (_LEFT + right) / 2
    middle_s = frame.now_s - frame.span_s / 2
    yield f'<text class="tick" x="{_LEFT}" y="{base}">{escape(duration(frame.span_s))} ago</text>'
    yield f'<text class="tick middle" x="{middle:.0f}" y="{base}">{_clock(middle_s, frame)}</text>'
    yield f'<text class="tick right" x="{right}" y="{base}">{_clock(frame.now_s, frame)} UTC</text>'


def _bands(series: Sequence[Series], frame: _Frame, say: Callable[[float], str]) -> Iterator[str]:
    """Yield invisible bands over the chart. The browser shows a band's time and values when the mouse rests on it."""
    found: list[dict[int, str]] = [{} for _ in range(BANDS)]
    times: dict[int, float] = {}
    for number, line in enumerate(series):
        for at_s, value in line.points:
            part = 1 - (frame.now_s - at_s) / frame.span_s
            if value is not None and math.isfinite(value) and 0 <= part <= 1:
                band = min(BANDS - 1, int(part * BANDS))
                found[band][number] = f"{line.name} {say(value)}"
                times[band] = at_s
    width = frame.inner_width / BANDS
    for band, texts in enumerate(found):
        if texts:
            text = f"{_clock(times[band], frame)} UTC: {'; '.join(texts[number] for number in sorted(texts))}"
            x = _LEFT + band * width
            yield (
                f'<path class="band" d="M{x:.1f} {_TOP}h{width:.1f}v{frame.inner_height}h-{width:.1f}z">'
                f"<title>{escape(text)}</title></path>"
            )


def _clock(at_s: float, frame: _Frame) -> str:
    """Format a time in UTC, with seconds in a chart of minutes, and with the day in a chart of a day."""
    form = (
        "%H:%M:%S"
        if frame.span_s <= SPANS[SPAN]
        else "%H:%M"
        if frame.span_s < SPANS["24h"] / 2
        else "%d %b %H:%M"
    )
    return moment(at_s, form)


def _nothing(width: int, height: int) -> str:
    return f'<text class="tick middle" x="{width / 2:.0f}" y="{height / 2:.0f}">no values yet</text>'

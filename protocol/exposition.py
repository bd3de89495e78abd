"""Prometheus' text format (version 0.0.4), in which metrics are scraped.

MESSAGES = Metric("messages_total", MetricKind.COUNTER, "Records appended.", ("topic",))
list(exposition([Family(MESSAGES, [(("orders",), 3)])]))
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from math import inf
from typing import Final

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
ROWS_PER_PIECE: Final = 500
"""Number of samples that are rendered at once: about half a millisecond of work."""

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class MetricKind(StrEnum):
    """Kinds of Prometheus metrics: a gauge may rise and fall, a counter or histogram only rises until its process
    restarts."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric's name, kind and meaning. Labels have a fixed order, in which each row gives their values."""

    name: str
    kind: MetricKind
    about: str
    labels: tuple[str, ...] = ()


def gauge(name: str, about: str, *labels: str) -> Metric:
    """Return a gauge metric: `about` is its help text, `labels` the names of its labels."""
    return Metric(name, MetricKind.GAUGE, about, labels)


def counter(name: str, about: str, *labels: str) -> Metric:
    """Return a counter metric: `about` is its help text, `labels` the names of its labels."""
    return Metric(name, MetricKind.COUNTER, about, labels)


@dataclass(slots=True)
class Histogram:
    """A Prometheus histogram: the number of observations in each bucket. `bounds` are the buckets' upper bounds; the
    last count is of observations above all bounds."""

    bounds: tuple[float, ...]
    counts: list[int] = field(init=False)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float) -> None:
        """Count one observation."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


Row = tuple[tuple[object, ...], float | Histogram]
"""Label values and the sample. A histogram's sample is a `Histogram`."""


@dataclass(frozen=True, slots=True)
class Family:
    """A metric with its present samples, one for each combination of label values. The iterables may be lazy: they are
    consumed once, while the text is written."""

    metric: Metric
    rows: Iterable[Row] = ()
    rendered: Iterable[tuple[str, float]] = ()
    """Samples with labels already rendered by `labelled`, which is most of the work if many families share the
    labels."""


Families = Iterable[Family | None]
"""Families to render. None between two families means that the next one takes time, so that other tasks may run
first."""


def exposition(families: Families) -> Iterator[str]:
    """Yield Prometheus' text for all metrics in pieces of at most `ROWS_PER_PIECE` samples, so that an event loop can
    run other tasks between them. Some pieces are empty."""
    for family in families:
        if family is None:
            yield ""
            continue
        metric = family.metric
        rows, rendered = iter(family.rows), iter(family.rendered)
        lines = [f"# HELP {metric.name} {metric.about}", f"# TYPE {metric.name} {metric.kind}"]
        while piece := list(islice(rows, ROWS_PER_PIECE)):
            for values, value in piece:
                if isinstance(value, Histogram):
                    lines += _histogram(metric, values, value)
                else:
                    lines.append(f"{metric.name}{labelled(metric.labels, values)} {value!r}")
            yield "\n".join(lines) + "\n"
            lines = []
        while samples := list(islice(rendered, ROWS_PER_PIECE)):
            lines += [f"{metric.name}{labels} {value!r}" for labels, value in samples]
            yield "\n".join(lines) + "\n"
            lines = []
        if lines:
            yield "\n".join(lines) + "\n"


def _histogram(metric: Metric, values: tuple[object, ...], histogram: Histogram) -> Iterator[str]:
    """Yield the text lines of a histogram: its cumulative buckets, its sum and its count."""
    names, running = (*metric.labels, "le"), 0
    for bound, count in zip((*histogram.bounds, inf), histogram.counts, strict=True):
        running += count
        le = "+Inf" if bound == inf else f"{bound:g}"
        yield f"{metric.name}_bucket{labelled(names, (*values, le))} {running}"
    labels = labelled(metric.labels, values)
    yield f"{metric.name}_sum{labels} {histogram.total!r}"
    yield f"{metric.name}_count{labels} {running}"


def labelled(names: tuple[str, ...], values: tuple[object, ...]) -> str:
    """Return the labels of a sample as Prometheus' text, `{name="value",...}`, which follows the metric's name."""
    if not names:
        return ""
    pairs = (f'{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=True))
    return "{" + ",".join(pairs) + "}"


def _escaped(value: object) -> str:
    return str(value).translate(_ESCAPES)

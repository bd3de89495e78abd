"""Draws the readings of `benchmarks.talk_charts` beside the published figures of Kafka. Needs matplotlib.

The published points come from two sources, measured on machines that differ from that of the readings here.

- "Benchmarking Apache Kafka: 2 Million Writes Per Second (On Three Cheap Machines)", LinkedIn Engineering, April 2014:
  Kafka 0.8.1, records of 100 B, six partitions. Three brokers with six cores and six disks each, three machines for
  the load, 1 Gbit/s between them. Its MB are 2**20 bytes. It shows other record sizes as a curve without numbers.
- "Intra-cluster Replication for Apache Kafka", a talk by Jun Rao of LinkedIn, ApacheCon 2013: Kafka 0.8, records of
  1 KB, replication factor 3. It states the time of a publication without an acknowledgement, with the leader's, and
  once committed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from .rounds import Row

MEBIBYTE = 2**20 / 1e6
"""A mebibyte in MB."""
NAMES = {"ottla": ("Ottla", "tab:blue"), "kafka": ("Apache Kafka 4.4", "tab:red")}
PUBLISHED = ("published", "lightgray")


class Chart(NamedTuple):
    """A chart: its title, and the published figures for some of its bars."""

    title: str
    published: Mapping[str, float]
    source: str


BENCHMARK, TALK = "benchmark of 2014, six machines", "talk of 2013"
CHARTS: dict[str, Chart] = {
    "acks": Chart(
        "one producer, 100 B, 3 replicas, by acks",
        {"acks=1": 75.1 * MEBIBYTE, "acks=all": 40.2 * MEBIBYTE},
        BENCHMARK,
    ),
    "size": Chart(
        "one producer, 3 replicas, acks=1, by size of records", {"100 B": 75.1 * MEBIBYTE}, BENCHMARK
    ),
    "replicas": Chart(
        "one producer, 100 B, by replicas and acks",
        {
            "1 x, acks=1": 78.3 * MEBIBYTE,
            "3 x, acks=1": 75.1 * MEBIBYTE,
            "3 x, acks=all": 40.2 * MEBIBYTE,
        },
        BENCHMARK,
    ),
    "producers": Chart(
        "100 B, 3 replicas, acks=1, by number of producers",
        {"1": 75.1 * MEBIBYTE, "3": 193.0 * MEBIBYTE},
        BENCHMARK,
    ),
    "consumers": Chart(
        "100 B, each consumer reads all, by number of consumers",
        {"1": 89.7 * MEBIBYTE, "3": 249.5 * MEBIBYTE},
        BENCHMARK,
    ),
    "latency": Chart(
        "one record of 1 KB in flight, 3 replicas, by acks",
        {"acks=0": 0.29, "acks=1": 1.05, "acks=all": 2.05},
        TALK,
    ),
    "end-to-end": Chart(
        "producer to a waiting consumer, 100 B, 3 replicas", {"p50": 2, "p99": 3, "p99.9": 14}, BENCHMARK
    ),
}


def last_readings(file: Path) -> dict[str, dict[str, Row]]:
    """Return the last readings of each chart, by cluster."""
    found: dict[str, dict[str, Row]] = {}
    for line in file.read_text().splitlines():
        found |= json.loads(line)["results"]
    return found


def draw(readings: Mapping[str, Mapping[str, Row]], file: Path) -> None:
    """Write a PNG with a panel for each chart."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = [name for name in CHARTS if name in readings]
    rows = (len(shown) + 1) // 2
    figure, panels = pyplot.subplots(rows, 2, figsize=(11, 3.2 * rows), layout="constrained", squeeze=False)
    for panel, name in zip(panels.flat, shown, strict=False):
        _draw_chart(panel, CHARTS[name], readings[name])
    for panel in panels.flat[len(shown) :]:
        panel.set_visible(False)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=90, metadata={"Software": None})
    pyplot.close(figure)


def _draw_chart(panel: Any, chart: Chart, readings: Mapping[str, Row]) -> None:
    """Draw bars side by side, with their values above them."""
    keys = list(readings["ottla"])
    labels = [key.rpartition(", ")[0] for key in keys]
    width = 0.8 / (len(readings) + 1)
    for number, (name, color, values) in enumerate(_bars(chart, readings, keys, labels)):
        places = [place + (number - 1) * width for place, value in enumerate(values) if value is not None]
        bars = panel.bar(
            places, [value for value in values if value is not None], width, color=color, label=name
        )
        panel.bar_label(bars, fmt=_told, fontsize=7, padding=1)
    panel.set_xticks(range(len(labels)), labels, fontsize=8)
    panel.set_ylabel(keys[0].rpartition(", ")[2])
    panel.set_title(chart.title, fontsize=10)
    panel.margins(y=0.4)  # room for the legend
    panel.legend(fontsize=7, loc="upper left")


def _bars(
    chart: Chart, readings: Mapping[str, Row], keys: list[str], labels: list[str]
) -> Iterator[tuple[str, str, list[float | None]]]:
    for cluster, (name, color) in NAMES.items():
        yield name, color, [readings[cluster].get(key) for key in keys]
    name, color = PUBLISHED
    yield f"{name}: {chart.source}", color, [chart.published.get(label) for label in labels]


def _told(value: float) -> str:
    return f"{value:.0f}" if value >= 20 else f"{value:.1f}" if value >= 5 else f"{value:.2f}"

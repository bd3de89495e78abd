"""Measures Ottla and Apache Kafka in turns, so that a machine whose speed drifts is unfair to neither, and tells it."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, Protocol

from rich.console import Console
from rich.table import Table

from .clusters import Cluster, ottla_cluster
from .kafka import kafka_cluster

Row = dict[str, float]
"""Names of readings, and what was read."""


class Launch(Protocol):
    """Starts a cluster in an empty folder; `settings` go to every node."""

    def __call__(
        self, data: Path, *, settings: Mapping[str, str] | None = None
    ) -> AbstractContextManager[Cluster]: ...


Figure = Callable[[Launch, Path], Row]
"""Starts a cluster in an empty folder, and measures it."""


class Goal(NamedTuple):
    """Of a reading: the ratio of Ottla's to Kafka's that is wanted, as the least or as the most."""

    ratio: float
    is_least: bool

    def told(self, ratio: float) -> str:
        """The goal, and whether this misses it."""
        is_met = ratio >= self.ratio if self.is_least else ratio <= self.ratio
        return f"{'>=' if self.is_least else '<='} {self.ratio:g}{'' if is_met else ': missed'}"


LAUNCHERS: dict[str, Launch] = {"ottla": ottla_cluster, "kafka": kafka_cluster}


def running(measure: Callable[[Cluster], Row]) -> Figure:
    """Of a cluster that runs already."""

    def figure(launch: Launch, data: Path) -> Row:
        with launch(data) as cluster:
            return measure(cluster)

    return figure


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that so many percent are not above."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(percent / 100 * (len(ordered) - 1)))]


def medians(
    name: str, figure: Figure, launchers: Mapping[str, Launch], rounds: int, console: Console
) -> dict[str, Row]:
    """Of every reading, over rounds that alternate between the clusters."""
    found: dict[str, list[Row]] = {launcher: [] for launcher in launchers}
    for number in range(rounds):
        for launcher, launch in launchers.items():
            data = Path(tempfile.mkdtemp(prefix=f"bench-{launcher}-"))
            try:
                with console.status(f"{name}: {launcher}, round {number + 1} of {rounds}"):
                    found[launcher].append(figure(launch, data))
            finally:
                shutil.rmtree(data, ignore_errors=True)
    return {n: {k: statistics.median(r[k] for r in rows) for k in rows[0]} for n, rows in found.items()}


def show(
    results: dict[str, dict[str, Row]], launchers: Sequence[str], goals: Mapping[str, Goal], console: Console
) -> None:
    """A table of all readings, with their ratio, and the goal for it, where both clusters have one."""
    both = len(launchers) == 2
    compared = ["ottla / kafka", *(["goal"] if goals else [])] if both else []
    table = Table("figure", *launchers, *compared)
    for figure, by_name in results.items():
        for key in by_name[launchers[0]]:
            values = [by_name[n].get(key) for n in launchers]
            told = []
            if both and values[0] is not None and values[1]:
                ratio = values[0] / values[1]
                told = [f"{ratio:.2f}", *([goals[key].told(ratio)] if key in goals else [])]
            table.add_row(f"{figure}: {key}", *("" if v is None else f"{v:,.2f}" for v in values), *told)
    console.print(table)


def main(
    description: str | None,
    figures: Mapping[str, Figure],
    rounds: int,
    launchers: Mapping[str, Launch] = LAUNCHERS,
    goals: Mapping[str, Goal] | None = None,
) -> int:
    """The command of a benchmark: which figures, of which cluster, in how many rounds (so many unless told). `goals`:
    by the name of a reading."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("figures", nargs="*", metavar="FIGURE", help=", ".join(figures))
    parser.add_argument("--only", choices=tuple(launchers))
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--json", action="store_true", help="print the readings as JSON, and no table")
    parser.add_argument("--record", type=Path, help="append the readings to this file")
    args = parser.parse_args()
    if unknown := set(args.figures) - set(figures):
        parser.error(f"unknown figure {sorted(unknown)[0]}: choose from {', '.join(figures)}")
    chosen = {args.only: launchers[args.only]} if args.only else launchers
    console = Console(stderr=args.json)
    wanted = args.figures or list(figures)
    results = {name: medians(name, figures[name], chosen, args.rounds, console) for name in wanted}
    if args.json:
        print(json.dumps(results))
    else:
        show(results, list(chosen), goals or {}, console)
    if args.record:
        record(args.record, rounds=args.rounds, results=results)
    return 0


def record(path: Path, **readings: object) -> None:
    """Append a line of JSON: these, when they were taken, and on what machine."""
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    with path.open("a") as out:
        out.write(json.dumps({"at": time.strftime("%F %T"), "machine": machine} | readings) + "\n")

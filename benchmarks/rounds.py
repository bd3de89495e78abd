"""Measures Ottla and Apache Kafka in alternating rounds, since a machine's speed may vary, and reports the results."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, Protocol

from rich.console import Console
from rich.table import Table

from .clusters import Cluster, ottla_cluster
from .kafka import kafka_cluster

Row = dict[str, float]
"""Readings by their names."""


class Launch(Protocol):
    """A function that starts a cluster in an empty folder; `settings` go to every node."""

    def __call__(
        self, data: Path, *, settings: Mapping[str, str] | None = None
    ) -> AbstractContextManager[Cluster]: ...


Figure = Callable[[Launch, Path], Row]
"""A function that starts a cluster in an empty folder, and measures it."""


class Goal(NamedTuple):
    """A goal for a reading: the least or the greatest wanted ratio of Ottla's value to Kafka's."""

    ratio: float
    is_least: bool

    def told(self, ratio: float) -> str:
        """Return the goal as text, with a note if `ratio` misses it."""
        is_met = ratio >= self.ratio if self.is_least else ratio <= self.ratio
        return f"{'>=' if self.is_least else '<='} {self.ratio:g}{'' if is_met else ': missed'}"


LAUNCHERS: dict[str, Launch] = {"ottla": ottla_cluster, "kafka": kafka_cluster}


def running(measure: Callable[[Cluster], Row]) -> Figure:
    """Make a figure of a function that measures a running cluster."""

    def figure(launch: Launch, data: Path) -> Row:
        with launch(data) as cluster:
            return measure(cluster)

    return figure


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest value that is not below `percent` percent of the values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(percent / 100 * (len(ordered) - 1)))]


def medians(
    name: str, figure: Figure, launchers: Mapping[str, Launch], rounds: int, console: Console
) -> dict[str, Row]:
    """Return the median of every reading, over rounds that alternate between the clusters."""
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
    """Print a table of all readings, with their ratio and its goal if both clusters have the reading."""
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
    """Run the command of a benchmark: selected figures of selected clusters, in `rounds` rounds by default.

    `goals`: by the name of a reading.
    """
    args = parsed(command_line(description, figures, rounds, launchers), figures)
    compare(args, figures, launchers, goals)
    return 0


def command_line(
    description: str | None,
    figures: Collection[str],
    rounds: int,
    launchers: Mapping[str, Launch] = LAUNCHERS,
) -> argparse.ArgumentParser:
    """Return the parser of a benchmark's command, to which the benchmark may add options."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("figures", nargs="*", metavar="FIGURE", help=", ".join(figures))
    parser.add_argument("--only", choices=tuple(launchers))
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--json", action="store_true", help="print the readings as JSON, and no table")
    parser.add_argument("--record", type=Path, help="append the readings to this file")
    return parser


def parsed(parser: argparse.ArgumentParser, figures: Collection[str]) -> argparse.Namespace:
    """Return the arguments of the command. The program ends with an error if a figure is unknown."""
    args = parser.parse_args()
    if unknown := set(args.figures) - set(figures):
        parser.error(f"unknown figure {sorted(unknown)[0]}: choose from {', '.join(figures)}")
    return args


def compare(
    args: argparse.Namespace,
    figures: Mapping[str, Figure],
    launchers: Mapping[str, Launch] = LAUNCHERS,
    goals: Mapping[str, Goal] | None = None,
    **parameters: object,
) -> None:
    """Measure the selected figures; show and record the readings. `parameters` of the load are recorded with them."""
    chosen = {args.only: launchers[args.only]} if args.only else launchers
    console = Console(stderr=args.json)
    wanted = args.figures or list(figures)
    results = {name: medians(name, figures[name], chosen, args.rounds, console) for name in wanted}
    if args.json:
        print(json.dumps(results))
    else:
        show(results, list(chosen), goals or {}, console)
    if args.record:
        record(args.record, rounds=args.rounds, **parameters, results=results)


def record(path: Path, **readings: object) -> None:
    """Append a line of JSON: these readings, the time, and the machine."""
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    with path.open("a") as out:
        out.write(json.dumps({"at": time.strftime("%F %T"), "machine": machine} | readings) + "\n")

"""Draws the delays of records by percentile, from readings of `benchmarks.open_messaging`.

    python -m benchmarks.open_messaging_plot benchmarks/results/open_messaging.jsonl docs/images/delays.svg

It draws the last lines of the file that have the figures `rates` and `mixed`, in a panel for each rate and one for the
mixed load. Needs matplotlib.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .open_messaging import PERCENTILES, SHARES
from .rounds import Row
from .transactions_plot import NAMES

RATE, MIXED = "{:.0f} %: ", ""
"""Beginnings of the names of readings: of a share of the peak, and of the mixed load."""


def panels_of(results: Mapping[str, Mapping[str, Row]]) -> dict[str, tuple[Mapping[str, Row], str]]:
    """Return the rows by cluster and the beginning of the readings' names, by the title of a panel."""
    found: dict[str, tuple[Mapping[str, Row], str]] = {}
    if "rates" in results:
        for share in SHARES:
            beginning = RATE.format(share * 100)
            found[_title(results["rates"], share, beginning)] = results["rates"], beginning
    if "mixed" in results:
        found["all loads at once"] = results["mixed"], MIXED
    return found


def _title(rows: Mapping[str, Row], share: float, beginning: str) -> str:
    """Return the title of a panel: the rate of all clusters, or the share of the peak if their rates differ."""
    rates = {round(row[f"{beginning}records/s"], -2) for row in rows.values()}
    return f"{rates.pop():,.0f} records a second" if len(rates) == 1 else f"{share:.0%} of the cluster's peak"


def draw(results: Mapping[str, Mapping[str, Row]], file: Path) -> None:
    """Draw the panels side by side, with a line for each cluster."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = panels_of(results)
    figure, axes = pyplot.subplots(
        1, len(panels), figsize=(3 * len(panels), 3.2), sharey=True, squeeze=False, layout="constrained"
    )
    for axis, (title, (rows, beginning)) in zip(axes.flat, panels.items(), strict=True):
        _draw_panel(axis, title, rows, beginning)
    axes[0][0].set_ylabel("from due to consumed, ms")
    axes[0][0].legend(fontsize=8)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, metadata={"Date": None})
    pyplot.close(figure)


def _draw_panel(axis: Any, title: str, rows: Mapping[str, Row], beginning: str) -> None:
    places = range(len(PERCENTILES) + 1)
    for cluster, row in rows.items():
        label, style, color = NAMES[cluster]
        names = [*(f"p{percent:g}, ms" for percent in PERCENTILES), "worst, ms"]
        axis.plot(places, [row[beginning + name] for name in names], style, color=color, label=label)
    axis.set_yscale("log")
    axis.set_xticks(places, [*(f"{percent:g}" for percent in PERCENTILES), "worst"], fontsize=8)
    axis.set_xlabel("percentile")
    axis.set_title(title, fontsize=10)
    axis.grid(axis="y", alpha=0.3)


def main() -> int:
    """Run the program; see the module's documentation."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("readings", type=Path)
    parser.add_argument("picture", type=Path)
    arguments = parser.parse_args()
    last: dict[str, dict[str, Row]] = {}
    for line in arguments.readings.read_text().splitlines():
        last |= json.loads(line)["results"]
    if not panels_of(last):
        parser.error(f"{arguments.readings} has no reading of `rates` or `mixed`")
    draw(last, arguments.picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Draws the cost of transactions by their size, from readings of `benchmarks.transactions`.

    python -m benchmarks.transactions_plot benchmarks/results/transactions.jsonl docs/images/transactions-by-size.svg

It draws the last line of the file that has the figure `size`. Needs matplotlib.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from .rounds import Row

PLAIN = "without transactions, records/s"
NAMES = {"ottla": ("Ottla", "o-", "tab:blue"), "kafka": ("Apache Kafka", "s--", "tab:red")}


def shares(row: Row) -> dict[int, float]:
    """Return the record rate by records in a transaction, in percent of the rate without transactions."""
    found = {}
    for name, value in row.items():
        if name != PLAIN:
            found[int(name.split()[0].replace(",", ""))] = value / row[PLAIN] * 100
    return found


def draw(rows: dict[str, Row], file: Path) -> None:
    """Draw a line for each cluster."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 3.5))
    for cluster, row in rows.items():
        label, style, color = NAMES[cluster]
        by_size = shares(row)
        axes.plot(list(by_size), list(by_size.values()), style, color=color, label=label)
    axes.set_xscale("log")
    axes.set_xlabel("records of 1 KB in a transaction")
    axes.set_ylabel("records/s, % of acks=all without")
    axes.set_ylim(bottom=0)
    axes.legend()
    figure.tight_layout()
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, metadata={"Date": None})
    pyplot.close(figure)


def main() -> int:
    """Run the program; see the module's documentation."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("readings", type=Path)
    parser.add_argument("picture", type=Path)
    arguments = parser.parse_args()
    lines = [json.loads(line) for line in arguments.readings.read_text().splitlines()]
    with_size = [line["results"]["size"] for line in lines if "size" in line["results"]]
    if not with_size:
        parser.error(f"{arguments.readings} has no reading of `size`")
    draw(with_size[-1], arguments.picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())

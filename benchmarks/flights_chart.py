"""The chart of the demo: throughput of the pipeline through both crashes, and the delays that it computed."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import datetime, timedelta
from pathlib import Path

from .flights_pipeline import Delays, Told

CARRIERS = 5
"""Number of carriers to draw, the largest first."""


def draw(told: Told, delays: Delays, path: Path) -> None:
    """Write a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (above, below) = pyplot.subplots(2, 1, figsize=(8, 6), layout="constrained")
    for batch in told.batches.values():
        begin = datetime.fromisoformat(batch["started"]).timestamp() - told.began
        above.bar(
            begin,
            batch["rows_per_second"],
            width=batch["seconds"],
            align="edge",
            color="tab:blue",
            edgecolor="white",
        )
    for n, (at, what) in enumerate(told.events):
        above.axvline(at, color="tab:red" if "killed" in what else "tab:green", linestyle="--", linewidth=1)
        above.annotate(
            what, (at, 1 - 0.09 * (n % 3)), xycoords=("data", "axes fraction"), fontsize=8, va="top"
        )
    above.set(
        title="flights through the pipeline, one bar per micro-batch",
        xlabel="seconds",
        ylabel="rows/s",
        xlim=(0, told.elapsed_s),
    )
    for carrier, (weeks, means) in weekly_means(delays).items():
        below.plot(weeks, means, label=carrier, linewidth=1.2)
    below.set(title="mean delay at departure, by week", ylabel="minutes")
    below.legend(title="carrier", fontsize=8, ncols=CARRIERS)
    figure.savefig(path, dpi=90)
    pyplot.close(figure)


def weekly_means(delays: Delays) -> dict[str, tuple[list[datetime], list[float]]]:
    """Return for each of the largest carriers the weeks, and the mean delay of departed flights."""
    flights: Counter[str] = Counter()
    sums: dict[tuple[str, datetime], list[int]] = defaultdict(lambda: [0, 0])
    for (carrier, day), (count, departed, minutes, _) in delays.items():
        flights[carrier] += count
        week = sums[carrier, day - timedelta(days=day.weekday())]
        week[0] += minutes
        week[1] += departed
    drawn = {}
    for carrier, _ in flights.most_common(CARRIERS):
        weeks = sorted(week for airline, week in sums if airline == carrier)
        drawn[carrier] = (weeks, [sums[carrier, week][0] / max(1, sums[carrier, week][1]) for week in weeks])
    return drawn

"""A command that runs many seeds: `python -m tests.simulation.raft.run --seeds 0-10000 --processes 2`.

A seed that breaks an invariant is printed with what broke; the same command with that seed plays it again.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import islice

from tests.simulation.raft.scenario import Report, run_seed

_CHUNK = 20


def play(seeds: range) -> list[Report | str]:
    """Return the outcome of each seed."""
    outcomes: list[Report | str] = []
    for seed in seeds:
        try:
            outcomes.append(run_seed(seed))
        except AssertionError as error:
            outcomes.append(str(error))
    return outcomes


def _chunks(first: int, last: int) -> Iterator[range]:
    for start in range(first, last, _CHUNK):
        yield range(start, min(start + _CHUNK, last))


def main() -> int:
    """Run the command, and return the number of seeds with a violation, at most 100."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0-1000", help="first-last, last excluded, or one seed")
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    first, _, last = arguments.seeds.partition("-")
    begin, end = int(first), int(last or int(first) + 1)
    started = time.monotonic()
    reports: list[Report] = []
    broken: list[str] = []
    with ProcessPoolExecutor(arguments.processes) as pool:
        for number, outcomes in enumerate(pool.map(play, _chunks(begin, end)), 1):
            for outcome in outcomes:
                if isinstance(outcome, str):
                    broken.append(outcome)
                    print(outcome, flush=True)
                else:
                    reports.append(outcome)
            if number % 10 == 0:
                _progress(reports, broken, started)
    _progress(reports, broken, started)
    for line in islice(broken, 20):
        print(line)
    return min(len(broken), 100)


def _progress(reports: list[Report], broken: list[str], started: float) -> None:
    five = sum(report.size == 5 for report in reports)
    print(
        f"{len(reports) + len(broken)} seeds ({five} with five nodes), {len(broken)} broken; "
        f"{sum(report.proposed for report in reports)} commands, "
        f"{sum(report.acknowledged for report in reports)} acknowledged, "
        f"{sum(report.terms for report in reports)} terms, "
        f"{sum(report.compacted for report in reports)} nodes with a snapshot, "
        f"{sum(report.restored for report in reports)} restored from old copies, "
        f"{sum(report.events for report in reports)} events, {time.monotonic() - started:.0f} s",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())

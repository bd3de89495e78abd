"""A command that plays many groups of workers: `python -m tests.simulation.worker.run --seeds 0-10000`.

A seed that breaks a promise is printed with the promise; the same command with that seed plays it again.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from tests.simulation.worker.scenario import Report, run_seed
from tests.simulation.worker.world import PromiseBroken

_CHUNK = 50


def play(seeds: range) -> list[Report | str]:
    """Return the outcome of each seed."""
    outcomes: list[Report | str] = []
    for seed in seeds:
        try:
            outcomes.append(run_seed(seed))
        except PromiseBroken as error:
            outcomes.append(str(error))
    return outcomes


def main() -> int:
    """Run the command, and return the number of seeds that broke a promise, at most 100."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0-1000", help="first-last, last excluded, or one seed")
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    first, _, last = arguments.seeds.partition("-")
    begin, end = int(first), int(last or int(first) + 1)
    chunks = [range(start, min(start + _CHUNK, end)) for start in range(begin, end, _CHUNK)]
    broken, totals = 0, Counter[str]()
    with ProcessPoolExecutor(arguments.processes) as pool:
        for outcomes in pool.map(play, chunks):
            for outcome in outcomes:
                if isinstance(outcome, str):
                    broken += 1
                    print(outcome, flush=True)
                else:
                    totals += Counter(
                        records=outcome.records,
                        starts=outcome.starts,
                        faults=outcome.faults,
                        transactional=outcome.exactly_once,
                        eager=outcome.is_eager,
                    )
    print(
        f"{end - begin} seeds, {broken} broken; "
        + ", ".join(f"{name} {value:,}" for name, value in totals.items())
    )
    return min(broken, 100)


if __name__ == "__main__":
    sys.exit(main())

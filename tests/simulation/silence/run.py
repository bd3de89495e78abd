"""A command that plays many worlds: `python -m tests.simulation.silence.run --seeds 0-10000`.

A seed with a wrong verdict is printed with the verdict; the same command with that seed plays it again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

from tests.simulation.silence.scenario import Report, SilenceBroken, run_seed

_CHUNK = 100


def play(seeds: range) -> list[Report | str]:
    """Return the outcome of each seed."""
    outcomes: list[Report | str] = []
    for seed in seeds:
        try:
            outcomes.append(run_seed(seed))
        except SilenceBroken as error:
            outcomes.append(str(error))
    return outcomes


def summary(kind: str, seconds: Sequence[float]) -> str:
    """Return the distribution of the times until a dead broker was fenced, as a line of text."""
    if not seconds:
        return f"{kind}: no broker stopped"
    ordered = sorted(seconds)
    middle, late = ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)]
    return f"{kind}: {len(ordered)} stopped, fenced after {middle:.2f} s p50, {late:.2f} p99, {ordered[-1]:.2f} worst"


def main() -> int:
    """Run the command, and return the number of seeds with a wrong verdict, at most 100."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0-1000", help="first-last, last excluded, or one seed")
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    first, _, last = arguments.seeds.partition("-")
    begin, end = int(first), int(last or int(first) + 1)
    broken: list[str] = []
    took: dict[bool, list[float]] = {True: [], False: []}
    chunks = [range(start, min(start + _CHUNK, end)) for start in range(begin, end, _CHUNK)]
    with ProcessPoolExecutor(arguments.processes) as pool:
        for outcomes in pool.map(play, chunks):
            for outcome in outcomes:
                if isinstance(outcome, str):
                    broken.append(outcome)
                    print(outcome, flush=True)
                elif outcome.took_s is not None:
                    took[outcome.is_calm].append(outcome.took_s)
    print(f"{end - begin} seeds, {len(broken)} broken")
    print(summary("calm worlds", took[True]))
    print(summary("busy worlds", took[False]))
    return min(len(broken), 100)


if __name__ == "__main__":
    sys.exit(main())

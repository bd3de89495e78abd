"""Play seeds of the simulated cluster.

    python -m tests.simulation.cluster.run --seeds 0-300              many, on all processors
    python -m tests.simulation.cluster.run --seeds 17 --trace 17.txt  one, with everything that happens in it
    python -m tests.simulation.cluster.run --seeds 17 --shrink        one that fails, with the faults it needs
    python -m tests.simulation.cluster.run --soak FOLDER              until stopped; failing seeds are kept
    python -m tests.simulation.cluster.run --mutants --seeds 0-300    seeds it takes to find historical faults

Exits with the number of seeds that broke something, at most 100.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import time
from collections.abc import Iterable
from contextlib import nullcontext
from functools import partial
from pathlib import Path

from tests.simulation.cluster.batches import (
    Simulation,
    find_mutants,
    fix_order_of_sets,
    play_many,
    seeds_of,
    tell,
    trace,
)
from tests.simulation.cluster.mutants import MUTANTS
from tests.simulation.cluster.playing import in_child, warm_up
from tests.simulation.cluster.scenario import Report, plan_of, play

SIMULATION = Simulation(
    "tests.simulation.cluster.run",
    lambda seed, sink: play(seed, None, sink),
    {name: mutant for name, mutant in MUTANTS.items() if mutant.where == "cluster"},
)


def main() -> int:
    """Run the command that the module's docstring describes."""
    fix_order_of_sets(SIMULATION.module)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", default="0-100", help="first-last, last excluded, or one seed")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--mutant", choices=SIMULATION.mutants)
    parser.add_argument(
        "--until-found", action="store_true", help="stop at the first seed that breaks something"
    )
    parser.add_argument("--trace", type=Path, metavar="FILE", help="write down what happens")
    parser.add_argument("--shrink", action="store_true", help="leave out the faults that are not needed")
    parser.add_argument(
        "--mutants", action="store_true", help="plant one after the other, until each is found"
    )
    parser.add_argument("--totals", type=Path, metavar="FILE", help="write what was counted, as JSON")
    parser.add_argument("--soak", type=Path, metavar="FOLDER", help="play on and on; keep what fails there")
    arguments = parser.parse_args()
    seeds: Iterable[int] = seeds_of(arguments.seeds)
    first = next(iter(seeds))
    mutant = SIMULATION.mutants[arguments.mutant].planted if arguments.mutant else nullcontext
    warm_up()
    if arguments.mutants:
        return find_mutants(SIMULATION, seeds, arguments.processes)
    with mutant():
        if arguments.shrink:
            return _shrink(first)
        if arguments.trace:
            return trace(SIMULATION, first, arguments.trace)
        if arguments.soak:
            arguments.soak.mkdir(parents=True, exist_ok=True)
            seeds = itertools.count(int(time.time()))
        played = play_many(SIMULATION, seeds, arguments.processes, arguments.until_found, arguments.soak)
    tell(played)
    if arguments.totals:
        arguments.totals.write_text(json.dumps(played.totals))
    return min(len(played.broken), 100)


def _shrink(seed: int) -> int:
    """Drop halves, then smaller parts of the plan, as long as it still fails in the same way."""
    plan = plan_of(seed)
    outcome = in_child(partial(play, seed, plan))
    if isinstance(outcome, Report):
        print(f"seed {seed} is clean")
        return 0
    kind = _kind(outcome)
    size = max(1, len(plan) // 2)
    while size >= 1:
        for start in range(0, len(plan), size):
            fewer = plan[:start] + plan[start + size :]
            again = in_child(partial(play, seed, fewer))
            if not isinstance(again, Report) and _kind(again) == kind:
                plan, outcome = fewer, again
                break
        else:
            size //= 2
    print(f"seed {seed}: {outcome}\nneeds {len(plan)} faults:")
    for fault in plan:
        print(f"  {fault}")
    return 1


def _kind(outcome: str) -> str:
    return outcome.partition(":")[0]


if __name__ == "__main__":
    sys.exit(main())

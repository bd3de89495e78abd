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
from collections import Counter
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from tests.simulation.cluster.mutants import MUTANTS
from tests.simulation.cluster.playing import in_child, outcomes, warm_up
from tests.simulation.cluster.scenario import Report, plan_of

_TIME = time.monotonic


def main() -> int:
    """See the module's documentation."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Sets of strings would differ in their order from run to run.
        os.execve(
            sys.executable,
            [sys.executable, "-m", _MODULE, *sys.argv[1:]],
            os.environ | {"PYTHONHASHSEED": "0"},
        )
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", default="0-100", help="first-last, last excluded, or one seed")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--mutant", choices=[name for name, mutant in MUTANTS.items() if mutant.where == "cluster"]
    )
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
    first, _, last = arguments.seeds.partition("-")
    seeds: Iterable[int] = range(int(first), int(last or int(first) + 1))
    mutant = MUTANTS[arguments.mutant].planted if arguments.mutant else nullcontext
    warm_up()
    if arguments.mutants:
        return _find_mutants(seeds, arguments.processes)
    with mutant():
        if arguments.shrink:
            return _shrink(int(first))
        if arguments.trace:
            return _trace(int(first), arguments.trace)
        if arguments.soak:
            arguments.soak.mkdir(parents=True, exist_ok=True)
            seeds = itertools.count(int(time.time()))
        played = _play_many(seeds, arguments.processes, arguments.until_found, arguments.soak)
    _tell(played)
    if arguments.totals:
        arguments.totals.write_text(json.dumps(played.totals))
    return min(len(played.broken), 100)


_MODULE = "tests.simulation.cluster.run"


@dataclass(slots=True)
class Played:
    """What became of many seeds."""

    began_s: float
    clean: int = 0
    broken: dict[int, str] = field(default_factory=dict)
    simulated_s: float = 0.0
    totals: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        return (
            f"{self.clean + len(self.broken)} seeds, {len(self.broken)} broken; "
            f"{self.simulated_s / 3600:.2f} simulated hours in {_TIME() - self.began_s:.0f} s"
        )


def _play_many(
    seeds: Iterable[int], processes: int, until_found: bool, kept: Path | None = None, *, quiet: bool = False
) -> Played:
    played = Played(_TIME())
    try:
        for seed, outcome in outcomes(seeds, processes):
            if isinstance(outcome, Report):
                played.clean += 1
                played.simulated_s += outcome.seconds
                played.totals += outcome.counts
                played.totals["events"] += outcome.events
            else:
                played.broken[seed] = outcome
                if kept is not None:
                    _keep(kept, seed, outcome)
                if not quiet:
                    again = f"again: python -m {_MODULE} --seeds {seed} --trace {seed}.txt"
                    print(f"seed {seed}: {outcome}\n{again}", flush=True)
                if until_found:
                    break
            if not quiet and (played.clean + len(played.broken)) % 50 == 0:
                print(played, flush=True)
    except KeyboardInterrupt:
        print()
    return played


def _tell(played: Played) -> None:
    print(played)
    for name, count in sorted(played.totals.items()):
        print(f"  {name:40} {count}")


def _find_mutants(seeds: Iterable[int], processes: int) -> int:
    """Plant each and play until it is found; returns how many were not."""
    missed = 0
    for name, mutant in MUTANTS.items():
        if mutant.where != "cluster":
            continue
        with mutant.planted():
            played = _play_many(seeds, processes, until_found=True, quiet=True)
        missed += not played.broken
        found = next((told.partition("\n")[2] or told for told in played.broken.values()), "NOT FOUND")
        print(
            f"{name:32} {played.clean + len(played.broken):4} seeds  {found.splitlines()[0][:110]}",
            flush=True,
        )
    return missed


def _keep(folder: Path, seed: int, outcome: str) -> None:
    (folder / f"{seed}.txt").write_text(
        f"python -m {_MODULE} --seeds {seed} --trace trace.txt\n\n{outcome}\n"
    )


def _trace(seed: int, path: Path) -> int:
    with path.open("w", buffering=1 << 16) as file:
        outcome = in_child(seed, None, file)
    print(f"seed {seed}: {outcome}")
    return 0 if isinstance(outcome, Report) else 1


def _shrink(seed: int) -> int:
    """Drop halves, then smaller parts of the plan, as long as it still fails in the same way."""
    plan, outcome = plan_of(seed), in_child(seed, None)
    if isinstance(outcome, Report):
        print(f"seed {seed} is clean")
        return 0
    kind = _kind(outcome)
    size = max(1, len(plan) // 2)
    while size >= 1:
        for start in range(0, len(plan), size):
            fewer = plan[:start] + plan[start + size :]
            again = in_child(seed, fewer)
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

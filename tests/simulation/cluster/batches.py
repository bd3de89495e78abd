"""Runs of many seeds of a simulation, sequential or in parallel, and their outcomes."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.simulation.cluster.planting import Mutant
from tests.simulation.cluster.playing import Player, in_child, outcomes
from tests.simulation.cluster.scenario import Report

_TIME = time.monotonic


class Simulation(NamedTuple):
    """The player of seeds, the command that runs it, and the mutants that it has to find."""

    module: str
    play: Player
    mutants: Mapping[str, Mutant]


@dataclass(slots=True)
class Played:
    """The outcomes of many seeds."""

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


def play_many(
    simulation: Simulation,
    seeds: Iterable[int],
    processes: int,
    until_found: bool,
    kept: Path | None = None,
    *,
    quiet: bool = False,
) -> Played:
    """Play seeds until they end or Ctrl-C is pressed.

    Failing seeds are printed, and written to a folder if one is given.
    """
    played = Played(_TIME())
    try:
        for seed, outcome in outcomes(simulation.play, seeds, processes):
            if isinstance(outcome, Report):
                played.clean += 1
                played.simulated_s += outcome.seconds
                played.totals += outcome.counts
                played.totals["events"] += outcome.events
            else:
                played.broken[seed] = outcome
                if kept is not None:
                    _keep(simulation, kept, seed, outcome)
                if not quiet:
                    again = f"again: python -m {simulation.module} --seeds {seed} --trace {seed}.txt"
                    print(f"seed {seed}: {outcome}\n{again}", flush=True)
                if until_found:
                    break
            if not quiet and (played.clean + len(played.broken)) % 50 == 0:
                print(played, flush=True)
    except KeyboardInterrupt:
        print()
    return played


def tell(played: Played) -> None:
    """Print the counts."""
    print(played)
    for name, count in sorted(played.totals.items()):
        print(f"  {name:40} {count}")


def find_mutants(simulation: Simulation, seeds: Iterable[int], processes: int) -> int:
    """Plant each mutant and play seeds until it is found; return the number of mutants that were not found."""
    missed = 0
    for name, mutant in simulation.mutants.items():
        with mutant.planted():
            played = play_many(simulation, seeds, processes, until_found=True, quiet=True)
        missed += not played.broken
        found = next((text.partition("\n")[2] or text for text in played.broken.values()), "NOT FOUND")
        print(
            f"{name:32} {played.clean + len(played.broken):4} seeds  {found.splitlines()[0][:110]}",
            flush=True,
        )
    return missed


def _keep(simulation: Simulation, folder: Path, seed: int, outcome: str) -> None:
    (folder / f"{seed}.txt").write_text(
        f"python -m {simulation.module} --seeds {seed} --trace trace.txt\n\n{outcome}\n"
    )


def trace(simulation: Simulation, seed: int, path: Path) -> int:
    """Play one seed and write its events to a file. Returns 1 if the seed violates an invariant, else 0."""
    with path.open("w", buffering=1 << 16) as file:
        outcome = in_child(lambda: simulation.play(seed, file.write), file)
    print(f"seed {seed}: {outcome}")
    return 0 if isinstance(outcome, Report) else 1


def fix_order_of_sets(module: str) -> None:
    """Re-execute this command if string hashing is random, so that sets of strings have the same order in every run."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.execve(
            sys.executable,
            [sys.executable, "-m", module, *sys.argv[1:]],
            os.environ | {"PYTHONHASHSEED": "0"},
        )


def seeds_of(text: str) -> Sequence[int]:
    """Return the seeds of a text such as `17`, `0-100` (without the last) or `0-12,79`."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or int(first) + 1))
    return found

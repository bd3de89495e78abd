"""Runs of many seeds of a simulation, sequential or in parallel, and their outcomes."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.simulation.cluster.planting import Mutant
from tests.simulation.cluster.playing import Player, in_child, outcomes
from tests.simulation.cluster.scenario import Report

_TIME = time.monotonic
PROGRESS_S = 10.0
"""Time after which the command says again how far it is."""


class Simulation(NamedTuple):
    """The player of seeds, the command that runs it, and the mutants that it has to find."""

    module: str
    play: Player
    mutants: Mapping[str, Mutant]


def _children_s() -> float:
    """Return the processor time of the children that have ended."""
    times = os.times()
    return times.children_user + times.children_system


@dataclass(slots=True)
class Played:
    """The outcomes of many seeds."""

    began_s: float = field(default_factory=_TIME)
    children_s: float = field(default_factory=_children_s)
    """Processor time of the children that ended before."""
    clean: int = 0
    broken: dict[int, str] = field(default_factory=dict)
    simulated_s: float = 0.0
    totals: Counter[str] = field(default_factory=Counter)

    @property
    def count(self) -> int:
        """Number of seeds."""
        return self.clean + len(self.broken)

    def __str__(self) -> str:
        each_s = (_children_s() - self.children_s) / max(1, self.count)
        return (
            f"{self.count} seeds, {len(self.broken)} broken; {self.simulated_s / 3600:.2f} simulated hours in "
            f"{_TIME() - self.began_s:.0f} s, {each_s:.1f} s of processor time a seed"
        )


class _Progress:
    """Lines that say every 10 s how far the seeds are."""

    def __init__(self, played: Played, seeds: Iterable[int]) -> None:
        self._played, self._told_s = played, played.began_s
        self._wanted = len(seeds) if isinstance(seeds, Sized) else None

    def tell(self) -> None:
        """Print a line if the last line is old enough."""
        now_s, played = _TIME(), self._played
        if now_s - self._told_s < PROGRESS_S:
            return
        self._told_s = now_s
        left = ""
        if self._wanted is not None:
            left_s = (self._wanted - played.count) * (now_s - played.began_s) / played.count
            left = f"; {self._wanted - played.count} left, some {left_s / 60:.0f} min"
        print(f"{played}{left}", file=sys.stderr, flush=True)


def play_many(
    simulation: Simulation,
    seeds: Iterable[int],
    processes: int,
    until_found: bool,
    kept: Path | None = None,
    *,
    quiet: bool = False,
) -> Played:
    """Play seeds until they end or Ctrl-C is pressed, and say on stderr how far they are.

    Failing seeds are printed, unless `quiet`, and written to a folder if one is given.
    """
    played = Played()
    progress = _Progress(played, seeds)
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
            progress.tell()
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
    seeds = list(seeds)
    for name, mutant in simulation.mutants.items():
        with mutant.planted():
            played = play_many(simulation, seeds, processes, until_found=True, quiet=True)
        missed += not played.broken
        found = next((text.partition("\n")[2] or text for text in played.broken.values()), "NOT FOUND")
        print(f"{name:32} {played.count:4} seeds  {found.splitlines()[0][:110]}", flush=True)
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

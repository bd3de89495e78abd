"""Seeds with every kind of fault, and the library's known faults planted to check that they are found."""

from __future__ import annotations

import pytest

from tests.simulation.raft.mutants import FAULTS, MUTANTS
from tests.simulation.raft.scenario import run_seed
from tests.simulation.raft.world import InvariantBroken

SEEDS = 30
MUTANT_SEEDS = 60


@pytest.mark.parametrize("first", range(0, SEEDS, 10))
def test_no_seed_breaks_an_invariant(first: int) -> None:
    for seed in range(first, first + 10):
        run_seed(seed)


@pytest.mark.parametrize("seed", [5513, 5702])
def test_no_entry_is_on_the_disk_before_its_term(seed: int) -> None:
    """A node heard of a term and of its first entry while an earlier vote was being saved, and lost power when the
    entry was durable and the term was not: it came back with a log in a later term than its vote."""
    run_seed(seed)


def test_nothing_is_restored_while_a_promise_is_forgotten() -> None:
    """The leader lost power before it had saved its followers' last acknowledgements.

    No leader came after it, and one of the followers came back with an older folder: docs/OPERATIONS.md says that no
    node may notice.
    """
    run_seed(2391)


def test_a_seed_reproduces() -> None:
    assert run_seed(7) == run_seed(7)


def play_many(seeds: range, only: frozenset[str]) -> None:
    for seed in seeds:
        run_seed(seed, only)


@pytest.mark.parametrize("name", MUTANTS)
def test_the_simulation_finds(name: str) -> None:
    with MUTANTS[name](), pytest.raises(InvariantBroken, match="seed "):
        play_many(range(MUTANT_SEEDS), FAULTS.get(name, frozenset()))

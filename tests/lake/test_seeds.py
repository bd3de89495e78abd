"""Some seeds of the lake with a store that fails, and mistakes that the seeds have to find."""

from __future__ import annotations

import pytest

from tests.lake.planted_mistakes import MISTAKES
from tests.lake.seeds import LostOrTwice, play

SEEDS = 4
WITHIN = 12
"""Seeds within which each mistake is found; today six are enough."""
FIRST = {"letters-ahead-are-forgotten": 5, "rows-before-letters": 5}
"""The seed that comes first for a mistake, since it finds the mistake and earlier seeds do not; else 0."""


@pytest.mark.parametrize("seed", range(SEEDS))
def test_tables_are_whole_though_workers_and_the_store_fail(seed: int) -> None:
    counts = play(seed)
    assert counts["records"] > 0


@pytest.mark.parametrize("name", MISTAKES)
def test_a_planted_mistake_is_found(name: str) -> None:
    for seed in (FIRST.get(name, 0), *range(WITHIN)):
        try:
            with MISTAKES[name]():
                play(seed)
        except LostOrTwice:
            return
    pytest.fail(f"{name} was not found within {WITHIN} seeds")

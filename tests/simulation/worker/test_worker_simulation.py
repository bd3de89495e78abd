"""Groups of workers on virtual time. `python -m tests.simulation.worker.run` plays more seeds."""

from __future__ import annotations

import pytest

from tests.simulation.worker.scenario import run_seed


@pytest.mark.parametrize("first", range(0, 40, 20))
def test_groups_keep_their_promises(first: int) -> None:
    reports = [run_seed(seed) for seed in range(first, first + 20)]
    assert sum(report.faults for report in reports) > 20
    assert {report.exactly_once for report in reports} == {True, False}
    assert {report.is_eager for report in reports} == {True, False}


@pytest.mark.parametrize("seed", [597, 606])
def test_offsets_are_committed_without_further_records(seed: int) -> None:
    """The next worker reads records that were finished before, and calls no handler: it must commit all the same."""
    run_seed(seed)


@pytest.mark.parametrize("seed", [13, 51])
def test_a_member_that_was_removed_during_a_handover_joins_again(seed: int) -> None:
    """Its transactions are refused for ever, and it learns of the removal only after the handover."""
    run_seed(seed)


def test_a_seed_gives_one_run() -> None:
    assert run_seed(7) == run_seed(7)

"""The histories of a share partition find each planted mistake."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from .share_mutants import MUTANTS
from .test_share_model import ShareHistory

FINDING = settings(
    max_examples=1_000,
    stateful_step_count=40,
    phases=[Phase.generate],
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_history_finds_the_mutant(name: str) -> None:
    with MUTANTS[name](), pytest.raises((AssertionError, ValueError, pytest.fail.Exception)):
        run_state_machine_as_test(ShareHistory, settings=FINDING)

"""The garbage collector only searches new objects while very many lasting objects are made."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from ottla.network.garbage_collection import only_new_garbage_collected


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[tuple[int, int, int]]:
    before = gc.get_threshold()
    gc.set_threshold(600, 7, 9)
    yield 600, 7, 9
    gc.set_threshold(*before)


def test_older_objects_are_not_looked_through_meanwhile(thresholds: tuple[int, int, int]) -> None:
    with only_new_garbage_collected(freezes=False):
        assert gc.get_threshold()[1] > 1_000_000
    assert gc.get_threshold() == thresholds


@pytest.mark.parametrize("first_leaves_first", [True, False])
def test_two_at_a_time_leave_the_thresholds_as_they_were(
    thresholds: tuple[int, int, int], *, first_leaves_first: bool
) -> None:
    first, other = ExitStack(), ExitStack()
    for stack in (first, other):
        stack.enter_context(only_new_garbage_collected(freezes=False))
    leaving = [first, other] if first_leaves_first else [other, first]
    leaving[0].close()
    assert gc.get_threshold() != thresholds, "another caller is still inside"
    leaving[1].close()
    assert gc.get_threshold() == thresholds


def test_a_failure_leaves_them_as_they_were_too(thresholds: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="no"), only_new_garbage_collected(freezes=False):
        raise ValueError("no")
    assert gc.get_threshold() == thresholds


def test_what_was_made_is_not_looked_through_later() -> None:
    frozen = gc.get_freeze_count()
    with only_new_garbage_collected(freezes=True):
        made = [[number] for number in range(5_000)]
    assert gc.get_freeze_count() >= frozen + len(made)

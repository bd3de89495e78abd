"""The garbage collector is off while commands are applied, and restored afterwards."""

from __future__ import annotations

import gc

import pytest

from ottla.network.garbage_collection import MANY_OBJECTS, gc_paused


def test_garbage_is_looked_for_before_and_afterwards_only() -> None:
    assert gc.isenabled()
    with gc_paused():
        assert not gc.isenabled()
        with gc_paused():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError), gc_paused():
        raise ZeroDivisionError
    assert gc.isenabled()


@pytest.mark.parametrize(
    ("stays", "objects", "frozen"),
    [(True, 2 * MANY_OBJECTS, True), (True, MANY_OBJECTS // 2, False), (False, 2 * MANY_OBJECTS, False)],
)
def test_what_stays_of_many_objects_is_not_looked_through(stays: bool, objects: int, frozen: bool) -> None:
    gc.collect()
    before = gc.get_freeze_count()
    with gc_paused(stays=stays):
        made: list[list[int]] = [[] for _ in range(objects)]
    assert (gc.get_freeze_count() - before >= len(made)) == frozen

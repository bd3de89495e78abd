"""Objects that survive a long pass of the garbage collector are skipped until the next full pass."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from ottla.network.garbage_collection import FullCollections, long_passes_freeze


class Ring:
    """Garbage that reference counting does not find."""

    def __init__(self) -> None:
        self.itself = self


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture(autouse=True)
def frozen() -> Iterator[int]:
    """Freeze the objects of other tests before and after the test, since each pass over them takes a second."""
    was_enabled = gc.isenabled()
    gc.disable()
    gc.collect()
    gc.freeze()
    yield gc.get_freeze_count()
    gc.freeze()
    if was_enabled:
        gc.enable()


def collected(watch: FullCollections) -> int:
    """Run a full pass, and return the number of objects that it found."""
    gc.callbacks.append(watch)
    try:
        return gc.collect()
    finally:
        gc.callbacks.remove(watch)


def test_garbage_is_collected_before_anything_is_frozen(frozen: int) -> None:
    watch = FullCollections(long_s=0.0, clock=Clock())
    made: list[list[int]] = [[] for _ in range(1_000)]
    gone = weakref.ref(Ring())
    collected(watch)
    assert gone() is None
    assert gc.get_freeze_count() >= frozen + len(made)


def test_what_becomes_garbage_later_is_found_when_all_is_looked_through() -> None:
    clock = Clock()
    watch = FullCollections(long_s=0.0, whole_every_s=600.0, clock=clock)
    ring = Ring()
    gone = weakref.ref(ring)
    collected(watch)
    del ring
    clock.now_s = 599.0
    collected(watch)
    assert gone() is not None, "it is frozen"
    clock.now_s = 600.0
    collected(watch)
    assert gone() is None
    other = Ring()
    also_gone = weakref.ref(other)
    collected(watch)
    del other
    clock.now_s = 1_199.0
    collected(watch)
    assert also_gone() is not None, "everything was looked through less than ten minutes ago"


def test_a_quick_pass_and_one_over_new_objects_freeze_nothing(frozen: int) -> None:
    made: list[list[int]] = [[] for _ in range(1_000)]
    collected(FullCollections(long_s=60.0, clock=Clock()))
    assert gc.get_freeze_count() < frozen + len(made)
    watch = FullCollections(long_s=0.0, clock=Clock())
    gc.callbacks.append(watch)
    try:
        gc.collect(1)
    finally:
        gc.callbacks.remove(watch)
    assert gc.get_freeze_count() < frozen + len(made)


def test_it_is_told_only_while_nodes_run() -> None:
    before = list(gc.callbacks)
    with long_passes_freeze():
        assert len(gc.callbacks) == len(before) + 1
    assert gc.callbacks == before

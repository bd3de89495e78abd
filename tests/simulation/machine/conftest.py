"""A machine that replaces the real files, locks and threads until the test ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

import pytest

from ottla.dataplane.runtime import threads as threads_module
from ottla.dataplane.storage import directory
from tests.simulation.machine.files import replacements
from tests.simulation.machine.installed import untouched_collector
from tests.simulation.machine.rooms import Room
from tests.simulation.machine.threads import VirtualLock, VirtualPool, VirtualRLock


@pytest.fixture
def make_room(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Room]:
    """Return a function that makes rooms; the files of the newest room's machine are in place until the test ends."""

    def make(seed: int) -> Room:
        room = Room(seed)
        monkeypatch.undo()
        for owner, name, value in replacements(room.machine):
            monkeypatch.setattr(owner, name, value)
        monkeypatch.setattr(threading, "Lock", partial(VirtualLock, room.machine))
        monkeypatch.setattr(threading, "_allocate_lock", partial(VirtualLock, room.machine))
        monkeypatch.setattr(threading, "RLock", partial(VirtualRLock, room.machine))
        monkeypatch.setattr(threads_module, "ThreadPoolExecutor", partial(VirtualPool, room.machine))
        monkeypatch.setattr(directory, "only_new_garbage_collected", untouched_collector)
        return room

    return make


@pytest.fixture
def room(make_room: Callable[[int], Room]) -> Room:
    return make_room(1)

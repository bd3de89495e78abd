"""A store in a folder keeps each object that it has reported as created, and no half object.

Power is lost meanwhile, processes die, and the disk gets full.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pytest

from ottla.client.failures import ObjectMissing
from ottla.client.objects import folder
from ottla.client.objects.folder import INCOMING, FolderStore
from tests.simulation.machine.rooms import Room

ABOVE = Path("/simulated/alpha")
ROOT = ABOVE / "store"
SIZE_MAX = 20_000
SEEDS = 60
RUN_S = 0.2


def _make_root() -> None:
    os.mkdir(ROOT)
    above = os.open(ABOVE, os.O_RDONLY)
    os.fsync(above)
    os.close(above)


def _content(key: str) -> bytes:
    chance = random.Random(key)
    return chance.randbytes(chance.randint(1, SIZE_MAX))


def _create(first: int, created: list[str]) -> None:
    """Create objects for ever, in folders that become empty and are made again."""
    store = FolderStore(ROOT)
    number = first
    while True:
        number += 1
        key = f"data/topic-{number % 3}/{number:06}"
        store._put_new(key.split("/"), _content(key))
        created.append(key)


def _objects() -> dict[str, int]:
    """Return the size of each object of the store."""
    store, found = FolderStore(ROOT), dict[str, int]()
    waiting: list[list[str]] = [[]]
    while waiting:
        parts = waiting.pop()
        objects, folders = store._scan(parts)
        waiting += [[*parts, name] for name in folders]
        found |= {each.key: each.size for each in objects}
    return found


def _check(created: list[str]) -> None:
    """Check that all created objects are there, and that all objects are whole."""
    store, found = FolderStore(ROOT), _objects()
    assert set(created) <= found.keys()
    for key, size in found.items():
        content = _content(key)
        assert (size, store._get(key.split("/"), 0, SIZE_MAX)) == (len(content), content), key


def _play(room: Room, chance: random.Random) -> int:
    """Let processes create objects, and end them. Returns the number of objects that were reported as created."""
    created: list[str] = []
    room.do(_make_root)
    for life in range(3):
        process, done = room.begin(partial(_create, life * 1_000, created))
        room.machine.run(room.machine.now + chance.uniform(0, RUN_S), done.done)
        assert not done.done(), done.result()
        if chance.random() < 0.7:
            room.lose_power()
        else:
            process.kill()
        room.do(partial(_check, list(created)))
    return len(created)


def test_created_objects_outlive_losses_of_power(make_room: Callable[[int], Room]) -> None:
    assert sum(_play(make_room(seed), random.Random(seed)) for seed in range(SEEDS)) > SEEDS


def test_an_object_that_is_not_flushed_is_lost(make_room: Callable[[int], Room]) -> None:
    """A store without the flush of files fails the same checks."""
    with (
        patch.object(folder, "_write", _write_without_flush),
        pytest.raises((AssertionError, ObjectMissing)),
    ):
        for seed in range(SEEDS):
            _play(make_room(seed), random.Random(seed))


def _write_without_flush(above: int, name: str, data: bytes) -> None:
    file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=above)
    os.write(file, data)
    os.close(file)


def _create_until_full(created: list[str]) -> None:
    with pytest.raises(OSError, match="No space left"):
        _create(len(created) * 7, created)


def test_a_full_disk_costs_no_object_and_leaves_no_file_behind(make_room: Callable[[int], Room]) -> None:
    for seed in range(SEEDS // 3):
        room, created = make_room(seed), list[str]()
        room.do(_make_root)
        for capacity in (100_000, 150_000, 220_000):
            room.disk.capacity_bytes = capacity
            room.do(partial(_create_until_full, created))
            room.do(partial(_check, list(created)))
            assert room.do(partial(os.listdir, ROOT / INCOMING)) == []
        assert len(created) > 3

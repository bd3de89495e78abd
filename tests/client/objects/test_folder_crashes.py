"""A process that dies at any step of a put leaves no half object; the steps are durable in their order."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ottla.client.objects.folder import INCOMING, INCOMING_KEPT_S
from ottla.client.objects.opening import open_store

ROOT = Path(__file__).parents[3]
DATA = b"0123456789" * 1000
STEPS = ("mkdir", "open", "write", "fsync", "link", "unlink", "close")
DYING = f"""
import asyncio, os, sys
from pathlib import Path
from ottla.client.objects.folder import FolderStore

root, calls = Path(sys.argv[1]), 0

def dying_at(step, name):
    call = getattr(os, name)
    def counted(*arguments, **named):
        global calls
        calls += 1
        if calls == step:
            if name == "write":
                call(arguments[0], arguments[1][:7])  # a part of the data
            os._exit(9)
        return call(*arguments, **named)
    return counted

step = 0
while True:
    step += 1
    folder = root / str(step)
    folder.mkdir()
    child = os.fork()
    if not child:
        for name in {STEPS!r}:
            setattr(os, name, dying_at(step, name))
        FolderStore(folder)._put_new(["topic", "day", "key"], b"0123456789" * 1000)
        os._exit(0)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0:
        break
print(step)
"""


def test_a_process_that_dies_at_any_step_leaves_no_half_object(tmp_path: Path) -> None:
    made = subprocess.run(
        [sys.executable, "-c", DYING, str(tmp_path)], cwd=ROOT, check=True, capture_output=True, timeout=60
    )
    steps = int(made.stdout)
    assert steps > 12
    whole = sum(asyncio.run(objects_of(tmp_path / str(step))) for step in range(1, steps + 1))
    assert 1 < whole < steps, "some die before the link, and some behind it"


async def objects_of(root: Path) -> int:
    """Return the number of objects that a dead process has created, each whole; then create the object if there is
    none."""
    store = open_store(root.as_uri(), 5)
    found = [found async for found in store.list()]
    assert [(each.key, each.size) for each in found] in ([], [("topic/day/key", len(DATA))])
    if not found:
        await store.put_new("topic/day/key", DATA)
    assert await store.get("topic/day/key", 0, 1 << 20) == DATA
    return len(found)


async def test_a_put_flushes_the_file_before_it_has_its_name_and_then_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def noted(name: str) -> Any:
        call = getattr(os, name)

        def noting(*arguments: Any, **named: Any) -> Any:
            where = os.readlink(f"/proc/self/fd/{arguments[0]}") if name == "fsync" else ""
            result = call(*arguments, **named)
            done.append(f"{name} {Path(where).name}" if len(Path(where).name) < 32 else f"{name} file")
            return result

        return noting

    for name in ("fsync", "link"):
        monkeypatch.setattr(os, name, noted(name))
    await open_store(tmp_path.as_uri(), 5).put_new("topic/key", DATA)
    root = f"fsync {tmp_path.name}"
    assert done == [root, "fsync file", root, "link ", "fsync topic"]


async def test_files_that_dead_processes_left_are_deleted_after_a_day(tmp_path: Path) -> None:
    (tmp_path / INCOMING).mkdir()
    old, new = tmp_path / INCOMING / "old", tmp_path / INCOMING / "new"
    for path in (old, new):
        path.write_bytes(b"x")
    long_ago = time.time() - INCOMING_KEPT_S - 60
    os.utime(old, (long_ago, long_ago))
    await open_store(tmp_path.as_uri(), 5).put_new("key", b"x")
    assert not old.exists()
    assert new.exists()

"""Servers of object stores that others wrote, as processes, and the check of a store in them."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from ottla.client.failures import ObjectExists, ObjectMissing
from ottla.client.objects.store import ObjectStore


@contextmanager
def running(log: Path, command: Sequence[str], said: str, within_s: float = 60) -> Iterator[str]:
    """Run a server until the end of the block, and yield the address that it prints after the text `said`. Its input
    stays open."""
    with (
        log.open("w") as file,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=file, stderr=file) as process,
    ):
        try:
            deadline = time.monotonic() + within_s
            while (found := re.search(rf"{said}.*?((?:http|hdfs)://[\w.]+:\d+)", log.read_text())) is None:
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.02)
            yield found[1]
        finally:
            process.kill()


async def check_store(store: ObjectStore) -> None:
    """Create, read, list and delete objects in an empty store."""
    keys = [f"orders/{day}/{number}" for day in ("2026-11-28", "2026-11-29") for number in range(4)]
    for key in keys:
        await store.put_new(key, key.encode() * 3)
    with pytest.raises(ObjectExists, match=keys[0]):
        await store.put_new(keys[0], b"other")
    assert await store.get(keys[0], 0, 1000) == keys[0].encode() * 3
    assert await store.get(keys[0], 3, 9) == (keys[0].encode() * 3)[3:9]
    assert await store.get(keys[0], 1000, 2000) == b""
    found = [each async for each in store.list()]
    assert sorted(each.key for each in found) == keys
    assert {each.size for each in found} == {len(keys[0]) * 3}
    assert all(abs(each.modified_ms / 1000 - time.time()) < 600 for each in found)
    assert sorted([each.key async for each in store.list("orders/2026-11-29/")]) == keys[4:]
    await store.delete(keys[0])
    await store.delete(keys[0])
    with pytest.raises(ObjectMissing, match="there is no object"):
        await store.get(keys[0], 0, 10)

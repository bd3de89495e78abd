"""A cancelled task, while its thread goes on, releases the thread's resources once the thread has ended.

Work for many items is spread over threads.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ottla.dataplane.log import LogConfig, PartitionLog
from ottla.dataplane.replication.leader.rechecks import Rechecks
from ottla.dataplane.runtime.threads import in_thread, spread
from ottla.dataplane.storage.log_verifier import LogVerifier
from ottla.protocol.records.record import encode_batch


class Gate:
    """A gate that delays work until it is opened."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._opened = threading.Event()

    def open(self) -> None:
        self._opened.set()

    def work(self, then: Callable[[], Any]) -> Any:
        self._loop.call_soon_threadsafe(self.reached.set)
        assert self._opened.wait(30)
        return then()


def fail() -> None:
    raise OSError("refused")


@pytest.mark.parametrize("in_own_pool", [True, False])
async def test_the_caller_gets_what_the_work_returns_or_raises(in_own_pool: bool) -> None:
    pool = ThreadPoolExecutor(1, "own") if in_own_pool else None
    name = await in_thread(lambda: threading.current_thread().name, pool)
    assert name.startswith("own") is in_own_pool
    with pytest.raises(OSError, match="refused"):
        await in_thread(fail, pool)
    if pool is not None:
        pool.shutdown()


@pytest.mark.parametrize("then", [int, fail])
async def test_a_cancelled_caller_waits_for_the_thread(then: Callable[[], Any]) -> None:
    gate = Gate()
    task = asyncio.create_task(in_thread(partial(gate.work, then)))
    await gate.reached.wait()
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0.01)
        assert not task.done()
    gate.open()
    with pytest.raises(asyncio.CancelledError):
        await task


class Replica:
    topic_id, index = b"t" * 16, 0

    def __init__(self, log: PartitionLog) -> None:
        self.log = log


def _verifying(replica: Any) -> Callable[[], Awaitable[None]]:
    verifier = LogVerifier(lambda: [replica], lambda *_: None, 1 << 40, 1)
    verifier.start()
    return verifier.close


def _doubting(replica: Any) -> Callable[[], Awaitable[None]]:
    doubts = Rechecks(lambda _: True, lambda *_: None)
    doubts.raised(replica, 0, 1000)
    return doubts.close


@pytest.mark.parametrize("look", [_verifying, _doubting])
async def test_a_file_stays_open_until_the_disk_has_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: Callable[[Any], Callable[[], Awaitable[None]]]
) -> None:
    log = PartitionLog.open(
        tmp_path / "t-0", LogConfig(segment_bytes=300), clean_shutdown=False, recovery_point=0, now_ms=0
    )
    for number in range(10):
        log.produced.append(memoryview(bytearray(encode_batch([(None, b"%d" % number * 50, 0)]))), 0, 0)
    gate, read = Gate(), os.pread
    loop_thread = threading.current_thread()
    read_by: list[int] = []

    def slow_read(fd: int, size: int, position: int) -> bytes:
        if threading.current_thread() is loop_thread:
            return read(fd, size, position)
        read_by.append(fd)
        found: bytes = gate.work(lambda: read(fd, size, position))
        return found

    monkeypatch.setattr(os, "pread", slow_read)
    close = look(Replica(log))
    await gate.reached.wait()
    closing = asyncio.ensure_future(close())
    await asyncio.sleep(0.01)
    log.close(clean=False)
    assert not closing.done()
    os.fstat(read_by[0])
    gate.open()
    await closing
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(read_by[0])


@pytest.mark.parametrize("threads", [1, 3])
def test_work_is_done_once_for_each_item(threads: int) -> None:
    done: list[int] = []
    spread("workers", done.append, range(100), threads)
    assert sorted(done) == list(range(100))
    spread("workers", done.append, [], threads)


@pytest.mark.parametrize("threads", [1, 3])
def test_what_an_item_raises_comes_to_the_caller(threads: int) -> None:
    def work(number: int) -> None:
        if number == 77:
            raise ValueError(f"{number} is none")

    with pytest.raises(ValueError, match="77 is none"):
        spread("workers", work, range(100), threads)

"""The thread that writes to the disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from ottla.metadata_quorum.raft.sync_thread import SyncThread


async def test_work_runs_in_order_and_is_told_in_order() -> None:
    ran: list[int] = []
    done: list[int] = []

    def finished(done: Callable[[], None], error: Exception | None) -> None:
        assert error is None
        done()

    thread = SyncThread(asyncio.get_running_loop(), finished)
    for number in range(100):
        thread.give(partial(ran.append, number), partial(done.append, number))
    await thread.stop()
    assert ran == list(range(100)), "nothing of what was given is left out"
    await asyncio.sleep(0)
    assert done == ran


async def test_what_work_raises_is_told_on_the_loop() -> None:
    failure: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
    thread = SyncThread(asyncio.get_running_loop(), lambda done, error: failure.set_result(error))

    def work() -> None:
        raise ValueError("the disk is gone")

    thread.give(work, lambda: None)
    async with asyncio.timeout(60):
        assert str(await failure) == "the disk is gone"
    await thread.stop()

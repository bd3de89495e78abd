"""Tasks that work at once: the first failure ends all, and leaves the caller as it was."""

from __future__ import annotations

import asyncio

import pytest

from ottla.client.backup.lanes import in_lanes


async def test_all_lanes_share_the_work() -> None:
    waiting, done = iter(range(20)), []

    async def work(lane: int) -> None:
        for number in waiting:
            await asyncio.sleep(0)
            done.append((lane, number))

    await in_lanes(3, work)
    assert sorted(number for _, number in done) == list(range(20))
    assert {lane for lane, _ in done} == {0, 1, 2}


async def test_a_failure_ends_all_lanes_and_later_time_outs_are_time_outs() -> None:
    ended: list[int] = []

    async def work(lane: int) -> None:
        try:
            await asyncio.sleep(0 if lane == 1 else 3600)
            raise OSError("no disk")
        finally:
            ended.append(lane)

    with pytest.raises(OSError, match="no disk"):
        await in_lanes(3, work)
    assert sorted(ended) == [0, 1, 2]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await asyncio.sleep(3600)


async def test_a_cancelled_caller_ends_all_lanes() -> None:
    ended: list[int] = []

    async def work(lane: int) -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append(lane)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await in_lanes(2, work)
    assert sorted(ended) == [0, 1]

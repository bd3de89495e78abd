"""Periodic work runs again and again, and not before its pause is over."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from ottla.dataplane.runtime.periodic import PeriodicRunner, PeriodicWork


class Part:
    def __init__(self) -> None:
        self.running = self.runs = self.together = 0

    def periodic_work(self) -> Iterator[PeriodicWork]:
        yield PeriodicWork("often", 0, self._run)
        yield PeriodicWork("seldom", 3600, self._fail)

    async def _run(self) -> None:
        self.runs += 1
        self.running += 1
        self.together = max(self.together, self.running)
        await asyncio.sleep(0)
        self.running -= 1

    async def _fail(self) -> None:
        raise AssertionError("its pause is not over")


async def test_work_is_repeated_until_the_runner_is_closed() -> None:
    part = Part()
    runner = PeriodicRunner([part])
    runner.start()
    assert part.runs == 0
    names = {task.get_name() for task in asyncio.all_tasks()}
    assert {"often", "seldom"} <= names
    while part.runs < 3:
        await asyncio.sleep(0)
    assert part.together == 1
    runner.close()
    await asyncio.sleep(0)
    runs = part.runs
    for _ in range(10):
        await asyncio.sleep(0)
    assert part.runs == runs

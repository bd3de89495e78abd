"""Periodic work of a broker's parts, each in a task of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class PeriodicWork:
    """A function of a broker's part that is run again and again. The pause follows the end of each run, so that runs
    never overlap.
    """

    name: str
    pause_s: float
    """Seconds before the first run, and between two runs."""
    run: Callable[[], Awaitable[None]]


class PeriodicPart(Protocol):
    """A part of the broker that has periodic work."""

    def periodic_work(self) -> Iterator[PeriodicWork]:
        """Yield the periodic work of this part of the broker."""
        ...


class PeriodicRunner:
    """The tasks that do the periodic work of all parts."""

    def __init__(self, parts: Sequence[PeriodicPart]) -> None:
        self.parts = parts
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start a task for each work, in the order of the parts."""
        self._tasks = [
            asyncio.create_task(_repeat(work), name=work.name)
            for part in self.parts
            for work in part.periodic_work()
        ]

    def close(self) -> None:
        """Stop all tasks."""
        for task in self._tasks:
            task.cancel()


async def _repeat(work: PeriodicWork) -> None:
    while True:
        await asyncio.sleep(work.pause_s)
        await work.run()

"""One question about topics at a time: who asks meanwhile waits for its answer, or shares the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence, Set


class Refreshing:
    """While an answer is awaited, others who want the same wait for it, too. What else is wanted meanwhile is asked for
    together, once that has ended.
    """

    def __init__(self, ask: Callable[[Sequence[str]], Awaitable[None]]) -> None:
        """`ask`: about these topics, in order; returns once the answer is taken over."""
        self._ask = ask
        self._asked: Set[str] = frozenset()
        self._wanted: set[str] = set()
        self._now: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    async def of(self, topics: Set[str]) -> None:
        """Return once these were asked about. Raises what `ask` raises."""
        task = self._now
        if task is None or not topics <= self._asked:
            self._wanted |= topics
            task = self._next
            if task is None:
                task = self._next = asyncio.ensure_future(self._follow(self._now))
                task.add_done_callback(self._ended)
        await asyncio.shield(task)

    async def close(self) -> None:
        """Whoever waits is cancelled."""
        tasks = [task for task in (self._now, self._next) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait((before,))
        self._now, self._next = self._next, None
        self._asked, self._wanted = self._wanted, set()
        await self._ask(sorted(self._asked))

    def _ended(self, task: asyncio.Task[None]) -> None:
        if self._now is task:
            self._now = None
        if not task.cancelled():
            task.exception()  # whoever still waits gets it; nobody else is warned

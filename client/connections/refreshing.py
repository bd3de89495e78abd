"""Requests about topics, one at a time: concurrent callers wait for the pending answer, or share the next request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence, Set


class Refreshing:
    """A queue of at most one pending and one next request.

    Callers that want topics of the pending request wait for it. The topics of all other callers are combined in the
    next request, once the pending one has ended.
    """

    def __init__(self, ask: Callable[[Sequence[str]], Awaitable[None]]) -> None:
        """Create an idle queue.

        `ask`: a function that requests these topics, in order, and returns once the answer is merged.
        """
        self._ask = ask
        self._asked: Set[str] = frozenset()
        self._wanted: set[str] = set()
        self._now: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    async def of(self, topics: Set[str]) -> None:
        """Wait until the metadata of these topics has been requested and merged. Raises the errors of `ask`."""
        task = self._now
        if task is None or not topics <= self._asked:
            self._wanted |= topics
            task = self._next
            if task is None:
                task = self._next = asyncio.ensure_future(self._follow(self._now))
                task.add_done_callback(self._ended)
        await asyncio.shield(task)

    async def close(self) -> None:
        """Cancel all metadata requests and the callers that wait for them."""
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
            task.exception()  # retrieves the exception, so that asyncio does not warn; waiters get it

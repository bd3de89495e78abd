"""Patterns that are matched with many names, beside whatever else the event loop does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Protocol


class Matcher(Protocol):
    """A pattern that tells how much work a text is."""

    @property
    def turn_work_max(self) -> int:
        """How much work one turn of the event loop may do."""
        ...

    def work(self, text: str) -> int:
        """Return how much work it is at most to match a text."""
        ...

    def fullmatch(self, text: str) -> bool:
        """Return whether all of the text matches."""
        ...


async def matching(pattern: Matcher, names: Iterable[str]) -> list[str]:
    """Return the names that match. The event loop has other turns in between, and a name that would take longer than
    one turn is matched in a thread."""
    found: list[str] = []
    done = 0
    for name in names:
        work = pattern.work(name)
        if work > pattern.turn_work_max:
            matches = await asyncio.to_thread(pattern.fullmatch, name)
        else:
            done += work
            if done > pattern.turn_work_max:
                done = work
                await asyncio.sleep(0)
            matches = pattern.fullmatch(name)
        if matches:
            found.append(name)
    return found

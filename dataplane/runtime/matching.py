"""Matching of patterns with many names, without keeping the event loop from other work."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Protocol


class Matcher(Protocol):
    """A compiled pattern that can estimate the work of matching a text."""

    @property
    def turn_work_max(self) -> int:
        """The most work, in the unit of `work`, that one turn of the event loop may take."""
        ...

    def work(self, text: str) -> int:
        """Return an upper bound of the work to match a text, in instructions times characters."""
        ...

    def fullmatch(self, text: str) -> bool:
        """Return whether the pattern matches the whole text."""
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

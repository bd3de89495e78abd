"""Asking the quorum's leader which application versions there were at a cut; see
`protocol.messages.app_version_questions`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from ...protocol.messages.app_version_questions import AppVersionsTold, AskAppVersions
from .listings import all_pages

Ask = Callable[[Callable[[int], AskAppVersions], float], Awaitable[AppVersionsTold | None]]
"""Asks what is made of the question's number; None if there was no answer within so many seconds."""


class VersionsFound(NamedTuple):
    """Application versions of transactional ids at a cut."""

    versions: dict[str, int]
    """-1 for an id that has none any more."""
    is_whole: bool
    """Whether all others have none; else they are as they were."""
    next_offset: int
    """The next question's told offset."""


class CutUnknown(Exception):
    """The quorum's leader does not know any more what held at that cut, or the cut is still to come."""


class AppVersionQuestions:
    """Calls that an active leader answers."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._one_listing = asyncio.Lock()

    async def at_cut(self, cut: int, told_offset: int, timeout_s: float) -> VersionsFound | None:
        """Of the ids whose version has changed behind a metadata offset that an earlier answer named; of all if it is
        -1, or the leader does not know what has changed since. None: no leader has answered in time. Raises CutUnknown.
        """
        try:
            async with asyncio.timeout(timeout_s), self._one_listing:
                return await self._list(cut, told_offset, timeout_s)
        except TimeoutError:
            return None

    async def _list(self, cut: int, told_offset: int, timeout_s: float) -> VersionsFound | None:
        async def ask(listing: int, position: int) -> AppVersionsTold | None:
            told = await self._ask(_page(cut, told_offset, listing, position), timeout_s)
            if told is not None and told.is_unknown:
                raise CutUnknown
            return told

        pages = await all_pages(ask)
        if pages is None:
            return None
        versions = {one.transactional_id: one.app_version for page in pages for one in page.versions}
        return VersionsFound(versions, pages[-1].is_whole, pages[-1].next_offset)


def _page(cut: int, told_offset: int, listing: int, position: int) -> Callable[[int], AskAppVersions]:
    return lambda number: AskAppVersions(
        question=number, listing=listing or number, position=position, cut=cut, told_offset=told_offset
    )

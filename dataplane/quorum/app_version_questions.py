"""Requests to the quorum's leader for application versions at a cut; see `protocol.messages.app_version_questions`.

A cut is a commit index: it names all transactions that were decided up to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from ...protocol.messages.app_version_questions import AppVersionsTold, AskAppVersions
from .listings import all_pages

Ask = Callable[[Callable[[int], AskAppVersions], float], Awaitable[AppVersionsTold | None]]
"""A function that asks the leader a question. Its arguments are a function that makes the question from the question's
number, and the seconds to wait. It returns None if no answer came in time."""


class VersionsFound(NamedTuple):
    """The application versions of transactional ids at a cut, all or those that have changed since an earlier
    answer."""

    versions: dict[str, int]
    """Application version by transactional id; -1 if the id no longer has a version."""
    is_whole: bool
    """True if ids that are not in `versions` have no version. False if their versions have not changed."""
    next_offset: int
    """The `told_offset` of the next question."""


class CutUnknown(Exception):
    """The error that the quorum's leader cannot name the application versions at a cut: it has forgotten them, or the
    cut is still to come."""


class AppVersionQuestions:
    """A client of the quorum's leader that asks for the application versions of transactional ids at a cut."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._one_listing = asyncio.Lock()

    async def at_cut(self, cut: int, told_offset: int, timeout_s: float) -> VersionsFound | None:
        """Return the application versions at a cut (a commit index) that have changed after `told_offset`, a metadata
        offset that an earlier answer named.

        The answer has the versions of all ids if `told_offset` is -1, or if the leader does not know the changes since
        then. Returns None if no leader answered in time. Raises CutUnknown.
        """
        try:
            async with asyncio.timeout(timeout_s), self._one_listing:
                return await self._list(cut, told_offset, timeout_s)
        except TimeoutError:
            return None

    async def _list(self, cut: int, told_offset: int, timeout_s: float) -> VersionsFound | None:
        async def ask(listing: int, position: int) -> AppVersionsTold | None:
            answer = await self._ask(_page(cut, told_offset, listing, position), timeout_s)
            if answer is not None and answer.is_unknown:
                raise CutUnknown
            return answer

        pages = await all_pages(ask)
        if pages is None:
            return None
        versions = {
            version.transactional_id: version.app_version for page in pages for version in page.versions
        }
        return VersionsFound(versions, pages[-1].is_whole, pages[-1].next_offset)


def _page(cut: int, told_offset: int, listing: int, position: int) -> Callable[[int], AskAppVersions]:
    return lambda number: AskAppVersions(
        question=number, listing=listing or number, position=position, cut=cut, told_offset=told_offset
    )

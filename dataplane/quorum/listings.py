"""Listings (of transactions, for example) that the quorum's leader sends on several pages.

Each leader keeps its own listings, so a new leader is asked from the first page on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar


class Page(Protocol):
    """The position of one page in a listing, as the leader's answer contains it."""

    question: int
    position: int
    """The position of the next page; negative if this is the last page."""
    began_elsewhere: bool
    """True if the leader does not know the listing, which another leader began."""


PageT = TypeVar("PageT", bound=Page)


async def all_pages(ask: Callable[[int, int], Awaitable[PageT | None]]) -> list[PageT] | None:
    """Return all pages of a listing, or None if a page was not answered.

    `ask` requests a page by the listing's number (0 for a new listing) and the page's position.
    """
    pages: list[PageT] = []
    listing = position = 0
    while position >= 0:
        page = await ask(listing, position)
        if page is None:
            return None
        if page.began_elsewhere:
            pages.clear()
            listing = position = 0
            continue
        listing = listing or page.question
        position = page.position
        pages.append(page)
    return pages

"""What the quorum's leader tells on several pages. Each leader keeps its own listings: a new one is asked anew."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar


class Page(Protocol):
    """An answer of the leader."""

    question: int
    position: int
    """Where the next page begins; below 0: this is the last one."""
    began_elsewhere: bool
    """The leader knows nothing of the listing."""


PageT = TypeVar("PageT", bound=Page)


async def all_pages(ask: Callable[[int, int], Awaitable[PageT | None]]) -> list[PageT] | None:
    """All pages of a listing. `ask` asks for one, by the number of the listing, 0 for a new one, and the position. None
    if one was not answered."""
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

"""Fragments of pages, rendered while browsers have the page open, once for all browsers at one address."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from ...protocol.errors import KafkaError
from ..bounds import STREAMS_MAX

logger = logging.getLogger(__name__)

Produce = Callable[[], Awaitable[Mapping[str, str]]]
"""A function that renders the fragments of a page, by name. Raises KafkaError or TimeoutError if the cluster does
not answer."""


class TooManyStreams(Exception):
    """The number of open event streams is at STREAMS_MAX, so another open page gets no updates."""


class Feed:
    """The changing fragments of the page at one URL, rendered every `refresh_s` seconds.

    Renderings are numbered, and each fragment has the number of the rendering in which it last changed.
    """

    def __init__(self, produce: Produce, refresh_s: float) -> None:
        self._produce, self._refresh_s = produce, refresh_s
        self._fragments: dict[str, tuple[int, str]] = {}
        self._round = 0
        self._trouble = (0, "")
        self._changed = asyncio.Condition()
        self._task = asyncio.create_task(self._run(), name="feed of the console")
        self.readers = 0

    async def news(self, seen: int) -> tuple[int, dict[str, str], str | None]:
        """Wait until a rendering after number `seen` changes the page.

        Returns the number of the newest rendering, the fragments that changed after `seen` (HTML by element id), and
        the reason why rendering fails. The reason is None if it is the same as before, and empty when rendering works
        again.
        """
        async with self._changed:
            await self._changed.wait_for(lambda: self._round > seen)
        fragments = {name: text for name, (since, text) in self._fragments.items() if since > seen}
        since, trouble = self._trouble
        return self._round, fragments, trouble if since > seen else None

    def end(self) -> None:
        """Stop rendering."""
        self._task.cancel()

    async def _run(self) -> None:
        while True:
            await self._refresh()
            await asyncio.sleep(self._refresh_s)

    async def _refresh(self) -> None:
        trouble = ""
        made: Mapping[str, str] = {}
        try:
            made = await self._produce()
        except KafkaError as error:
            trouble = error.message
        except TimeoutError:
            trouble = "the cluster took too long to answer"
        except Exception:
            logger.exception("a page could not be updated")
            trouble = "this page could not be updated; the console's log has the reason"
        coming = self._round + 1
        changed = {name: (coming, text) for name, text in made.items() if self._text(name) != text}
        self._fragments |= changed
        if trouble != self._trouble[1]:
            self._trouble = (coming, trouble)
        elif not changed:
            return
        async with self._changed:
            self._round = coming
            self._changed.notify_all()

    def _text(self, name: str) -> str | None:
        known = self._fragments.get(name)
        return None if known is None else known[1]


class FeedReader:
    """One browser's position in the feed of a page."""

    def __init__(self, feed: Feed, close: Callable[[], None]) -> None:
        self._feed, self.close = feed, close
        self._seen = 0

    async def news(self) -> tuple[dict[str, str], str | None]:
        """Wait for changes of the page that this browser has not received yet.

        Returns the fragments and the reason of a failure, as `Feed.news` does.
        """
        self._seen, fragments, trouble = await self._feed.news(self._seen)
        return fragments, trouble


class Feeds:
    """All feeds of open pages, by page URL. The last reader that leaves ends its feed."""

    def __init__(self) -> None:
        self._feeds: dict[str, Feed] = {}

    @property
    def readers(self) -> int:
        """The number of browsers that read feeds."""
        return sum(feed.readers for feed in self._feeds.values())

    def open(self, address: str, produce: Produce, refresh_s: float) -> FeedReader:
        """Return a reader of the feed of the page at `address`; the feed is started if this is its first reader.

        The caller must call `FeedReader.close`. Raises TooManyStreams.
        """
        if self.readers >= STREAMS_MAX:
            raise TooManyStreams(f"{STREAMS_MAX} pages are kept up to date already; close some")
        feed = self._feeds.get(address)
        if feed is None:
            feed = self._feeds[address] = Feed(produce, refresh_s)
        feed.readers += 1
        return FeedReader(feed, lambda: self._leave(address, feed))

    def end(self) -> None:
        """End all feeds."""
        for feed in self._feeds.values():
            feed.end()
        self._feeds.clear()

    def _leave(self, address: str, feed: Feed) -> None:
        feed.readers -= 1
        if feed.readers == 0:
            feed.end()
            if self._feeds.get(address) is feed:
                del self._feeds[address]

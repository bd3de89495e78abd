"""Fetches of very many partitions, which are read in time slices."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ...protocol.errors import ErrorCode
from ...protocol.messages.fetch import FetchResponse
from .reading import PARTITIONS_PER_TURN, ClientFetch, FetchReader, Round

if TYPE_CHECKING:
    from .sessions import SessionPartition

logger = logging.getLogger(__name__)


def to_read(fetch: ClientFetch) -> list[SessionPartition]:
    """Return the partitions that an answer has to contain: the active ones of a session, or all if there is no
    session."""
    session = fetch.session
    return list(session.active if fetch.incremental else session.partitions.values())


def is_long(fetch: ClientFetch) -> bool:
    """Return whether a fetch has too many partitions for one turn of the event loop, so that it is read in time
    slices."""
    session = fetch.session
    return len(session.active if fetch.incremental else session.partitions) > PARTITIONS_PER_TURN


class LongFetch:
    """A consumer's fetch that is read in time slices. It is read again when a partition has news, until it is
    answered."""

    def __init__(
        self,
        fetch: ClientFetch,
        reader: FetchReader,
        answer: Callable[[ClientFetch, Round], Awaitable[None]],
        forget: Callable[[LongFetch], None],
    ) -> None:
        self._fetch, self._reader = fetch, reader
        self._answer, self._forget = answer, forget
        self._news = asyncio.Event()
        self._is_over = False
        fetch.session.parked = self
        self._task = asyncio.get_running_loop().create_task(self._run())

    def wake(self) -> None:
        """Have the fetch's partitions read again, since one may have news (records, an error, a moved offset)."""
        self._news.set()

    def expired(self) -> None:
        """Answer the fetch with the records available, since its time is over."""
        self._is_over = True
        self._news.set()

    def superseded(self, error: ErrorCode) -> None:
        """Answer the fetch with an error, since its fetch session continues or ends without it."""
        self._end()
        self._fetch.request.reply(FetchResponse(error_code=error))

    def abandon(self) -> None:
        """Drop the fetch, since its client has disconnected."""
        self._end()
        if not self._fetch.session.id:
            self._fetch.session.close()

    def _end(self) -> None:
        self._task.cancel()
        self._leave()

    def _leave(self) -> None:
        if self._fetch.session.parked is self:
            self._fetch.session.parked = None
        self._forget(self)

    async def _run(self) -> None:
        fetch = self._fetch
        try:
            found = await self._read()
            self._leave()
            await self._answer(fetch, found)
        except Exception:
            logger.exception(
                "Fetch version %d of %s failed", fetch.request.api_version, fetch.request.connection
            )
            self._leave()
            fetch.request.close_connection()

    async def _read(self) -> Round:
        """Read the partitions again and again; return the first results that suffice for an answer (`min_bytes`, an
        error), or the last before `max_wait_ms` are over."""
        fetch, loop = self._fetch, asyncio.get_running_loop()
        deadline_s = fetch.request.received_at + fetch.message.max_wait_ms / 1000
        while True:
            last = self._is_over or loop.time() >= deadline_s
            self._news.clear()
            found = await self._reader.read_in_time_slices(fetch, to_read(fetch))
            if last or found.urgent or found.size >= fetch.message.min_bytes:
                return found
            found.release()
            try:
                async with asyncio.timeout_at(deadline_s):
                    await self._news.wait()
            except TimeoutError:
                pass

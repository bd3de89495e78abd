"""Sending of answers that contain records. Threads first read the data that is not in the page cache, so that the event
loop never waits for a disk.

A small slice that is in the page cache is copied, and the answer leaves in one `send`. A large slice is probed
(`LogSlice.is_cached`), and sent from the file. Only a slice that is not cached is passed to a thread. The connection
keeps the answers in the order of the requests.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..log import LogSlice
from ..server.handler import ClientRequest
from ..server.sending import Part

logger = logging.getLogger(__name__)

_THREADS = 4
_CHUNK_BYTES = 1024 * 1024
_SMALL_BYTES = 128 * 1024
"""Largest slice that is copied. One `send` then carries the whole answer. A file slice in the middle would take three,
and cost more than the copy."""


class ColdReads:
    """A sender of Fetch answers, which are sent at once, or once their records are in the page cache."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._threads = ThreadPoolExecutor(_THREADS, "cold reads")
        self.count = 0
        """Number of slices that were read ahead."""

    def reply(self, request: ClientRequest, parts: list[Any]) -> None:
        """Answer the request. Its body consists of parts: bytes, and slices of log files."""
        cold: list[LogSlice] = []
        try:
            ready = [_at_hand(part, cold) for part in parts]
        except (OSError, EOFError) as error:
            self._unreadable(request, parts, error)
            return
        if cold:
            self._read_ahead(request, ready, cold, lambda: request.reply_parts(ready))
        else:
            request.reply_parts(ready)

    def answer(self, request: ClientRequest, head: bytes, records: LogSlice, tail: bytes) -> None:
        """Answer the request with a frame made of `head`, the records of one slice, and `tail`."""
        cold: list[LogSlice] = []
        try:
            body = _at_hand(records, cold)
        except (OSError, EOFError) as error:
            self._unreadable(request, (records,), error)
            return
        parts = (head, body, tail) if tail else (head, body)
        if cold:
            self._read_ahead(request, parts, cold, lambda: request.connection.answer(request, parts))
        else:
            request.connection.answer(request, parts)

    def _read_ahead(
        self,
        request: ClientRequest,
        parts: Sequence[Part],
        cold: Sequence[LogSlice],
        send: Callable[[], None],
    ) -> None:
        self.count += len(cold)
        ahead = self._loop.run_in_executor(self._threads, _read_ahead, cold)
        ahead.add_done_callback(lambda done: self._arrived(request, parts, done, send))

    def _arrived(
        self,
        request: ClientRequest,
        parts: Sequence[Part],
        done: asyncio.Future[None],
        send: Callable[[], None],
    ) -> None:
        if done.cancelled():
            _release(parts)
            return
        error = done.exception()
        if error is None:
            send()
        else:
            self._unreadable(request, parts, error)

    def _unreadable(self, request: ClientRequest, parts: Sequence[Part], error: BaseException) -> None:
        """Close the connection. The disk does not return records that the log has, so every answer would be wrong."""
        logger.error("closing the connection of %s: records cannot be read: %s", request.connection, error)
        _release(parts)
        request.close_connection()

    def close(self) -> None:
        """Start no more reads into the page cache, as the broker stops."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _at_hand(part: Any, cold: list[LogSlice]) -> Part:
    """Return the data to send for a part of an answer: bytes, or a slice of a log file. A slice that is not in the page
    cache is added to `cold`.

    Raises OSError, EOFError.
    """
    if not isinstance(part, LogSlice) or part.size == 0:
        return part  # type: ignore[no-any-return]
    if part.size > _SMALL_BYTES:
        if not part.is_cached():
            cold.append(part)
        return part
    data = part.read_cached()
    if data is None:
        cold.append(part)
        return part
    part.release()
    return data


def _read_ahead(slices: Sequence[LogSlice]) -> None:
    """Read the slices into the page cache. It runs in a thread, since it waits for the disk."""
    buffer = memoryview(bytearray(_CHUNK_BYTES))
    for cold in slices:
        fd, position, end = cold.fileno(), cold.position, cold.position + cold.size
        # The following bytes are requested, too: a consumer that reads in order needs them next, and the event loop
        # looks there for the end of a batch.
        os.posix_fadvise(fd, position, 2 * cold.size + _CHUNK_BYTES, os.POSIX_FADV_WILLNEED)
        while position < end:
            got = os.preadv(fd, [buffer[: min(_CHUNK_BYTES, end - position)]], position)
            if got == 0:
                raise EOFError("the log was truncated while a slice of it was read")
            position += got


def _release(parts: Sequence[Part]) -> None:
    for part in parts:
        if isinstance(part, LogSlice):
            part.release()

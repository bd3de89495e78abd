"""Sends answers that contain records. Threads first read what is not in the page cache, so that the loop never waits
for a disk.

A small slice that the kernel holds is copied, and the answer leaves in one send. A large one is probed
(`LogSlice.is_cached`), and sent from the file. Only a slice that is not cached costs a hop to a thread. The connection
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
"""Up to this a slice is copied: one send then carries the whole answer, where a file in the middle makes three, and
costs more than the copy."""


class ColdReads:
    """Sends answers at once, or once their records are in the page cache."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._threads = ThreadPoolExecutor(_THREADS, "cold reads")
        self.count = 0
        """Slices that were read ahead."""

    def reply(self, request: ClientRequest, parts: list[Any]) -> None:
        """Answer `request` with a body in parts."""
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
        """Answer `request` with a whole frame around one slice."""
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
        """Close the connection: the disk does not return records that the log has, so no answer would be true."""
        logger.error("closing the connection of %s: records cannot be read: %s", request.connection, error)
        _release(parts)
        request.close_connection()

    def close(self) -> None:
        """Start no more reads."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _at_hand(part: Any, cold: list[LogSlice]) -> Part:
    """What is sent for a part. A slice that the kernel does not hold is `cold`. Raises OSError, EOFError."""
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
    """Have the kernel hold the slices. In a thread: it waits for the disk."""
    buffer = memoryview(bytearray(_CHUNK_BYTES))
    for cold in slices:
        fd, position, end = cold.fileno(), cold.position, cold.position + cold.size
        # Not only these: a consumer that reads in order wants what follows, and the loop looks there for the end
        # of a batch.
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

"""Sends answers that contain records. Threads first read what is not in the page cache, so that the loop never waits
for a disk.

Each slice of a file is probed (`LogSlice.is_cached`). A small cached slice is copied, and the answer leaves in one
send. A large one is sent from the file. Only an uncached slice costs a hop to a thread. The connection keeps the
answers in the order of the requests.
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
        cold = [part for part in parts if isinstance(part, LogSlice) and part.size and not part.is_cached()]
        if not cold:
            try:
                ready = [_in_memory(part) for part in parts]
            except OSError as error:
                self._unreadable(request, parts, error)
                return
            request.reply_parts(ready)
            return
        self.count += len(cold)
        ahead = self._loop.run_in_executor(self._threads, _read_ahead, cold)
        ahead.add_done_callback(
            lambda done: self._arrived(request, parts, done, lambda: request.reply_parts(parts))
        )

    def answer(self, request: ClientRequest, head: bytes, records: LogSlice, tail: bytes) -> None:
        """Answer `request` with a whole frame around one slice."""
        if not records.is_cached():
            self.count += 1
            ahead = self._loop.run_in_executor(self._threads, _read_ahead, (records,))
            ahead.add_done_callback(
                lambda done: self._arrived(
                    request, (head, records, tail), done, lambda: self._send(request, head, records, tail)
                )
            )
            return
        self._send(request, head, records, tail)

    def _send(self, request: ClientRequest, head: bytes, records: LogSlice, tail: bytes) -> None:
        try:
            body = _in_memory(records)
        except OSError as error:
            self._unreadable(request, (records,), error)
            return
        request.connection.answer(request, (head, body, tail) if tail else (head, body))

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


def _in_memory(part: Any) -> Part:
    if isinstance(part, LogSlice) and 0 < part.size <= _SMALL_BYTES:
        data = part.read()
        part.release()
        return data
    return part  # type: ignore[no-any-return]


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

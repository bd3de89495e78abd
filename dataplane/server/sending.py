"""The parts that answers consist of, and the queue of parts for a socket."""

from __future__ import annotations

import errno
import os
import socket
from collections import deque
from collections.abc import Iterable
from typing import Protocol, TypeAlias

from ...network.tls.stream import RECORD_BYTES
from ...network.tls.transport import TlsTransport
from .buffers import Buffer, BufferPool


class SliceLike(Protocol):
    """A byte range of a file, such as a slice of a log, that is sent from the page cache without being read."""

    @property
    def position(self) -> int: ...
    @property
    def size(self) -> int: ...
    def fileno(self) -> int: ...
    def failed(self, error: OSError) -> None:
        """Note that the disk failed to read the range."""

    def release(self) -> None: ...


Part: TypeAlias = bytes | bytearray | memoryview | SliceLike

IN_MEMORY = (bytes, bytearray, memoryview)
SLICE_COST_BYTES = 256
"""The size that a queued slice adds to the queued bytes, which are limited."""

# The bytes that one connection may send per wake-up before others have their turn; fewer if they must be encrypted.
_SEND_BYTES = 4 * 1024 * 1024
_ENCRYPT_BYTES = 512 * 1024
_GATHERED_BYTES = 4 * RECORD_BYTES
_PARTS_PER_SEND = 64


def release(parts: Iterable[Part]) -> None:
    """Release the file slices among these parts, which will not be sent."""
    for part in parts:
        if not isinstance(part, IN_MEMORY):
            part.release()


class SendQueue:
    """A queue of answers' parts for a non-blocking socket, which are neither copied nor joined."""

    __slots__ = ("_sent", "_socket", "occupied_bytes", "parts")

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._begin()

    def _begin(self) -> None:
        self.parts: deque[Part] = deque()
        # number of bytes of the first part that were sent
        self._sent = 0
        # Memory of answers, including those that wait for an earlier answer before they are queued. The code that makes
        # an answer adds its size; this queue subtracts it.
        self.occupied_bytes = 0

    def send(self) -> int:
        """Send the bytes that the socket takes, up to the limit of a turn. Returns their number.

        Raises OSError if the connection is broken or a slice cannot be read.
        """
        parts = self.parts
        if len(parts) == 1 and not self._sent and isinstance(parts[0], IN_MEMORY):
            return self._send_single_part(parts[0])
        left = _SEND_BYTES
        try:
            while parts and left > 0:
                left -= self._send_some()
        except (BlockingIOError, InterruptedError):
            pass
        return _SEND_BYTES - left

    def _send_single_part(self, part: bytes | bytearray | memoryview) -> int:
        """Send the only part in the queue, a small answer in memory: the usual case. Returns the number of sent bytes;
        the rest is sent later.
        """
        try:
            sent = self._socket.send(part)
        except (BlockingIOError, InterruptedError):
            return 0
        if sent == len(part):
            self.parts.clear()
            self.occupied_bytes -= sent
        else:
            self._sent = sent
        return sent

    def _send_some(self) -> int:
        parts = self.parts
        head = parts[0]
        if not isinstance(head, IN_MEMORY):
            if head.size == 0:
                self._mark_sent(0)
                return 0
            sent = self._send_slice(head)
        elif len(parts) == 1:
            sent = self._socket.send(memoryview(head)[self._sent :] if self._sent else head)
        else:
            buffers: list[bytes | bytearray | memoryview] = []
            flags = 0
            for part in parts:
                if not isinstance(part, IN_MEMORY):
                    flags = socket.MSG_MORE
                    break
                if len(buffers) == _PARTS_PER_SEND:
                    break
                buffers.append(part)
            if self._sent:
                buffers[0] = memoryview(head)[self._sent :]
            sent = self._socket.sendmsg(buffers, (), flags)
        self._mark_sent(sent)
        return sent

    def _send_slice(self, head: SliceLike) -> int:
        try:
            sent = os.sendfile(
                self._socket.fileno(), head.fileno(), head.position + self._sent, head.size - self._sent
            )
        except OSError as error:
            if error.errno == errno.EIO:  # The error is the file's, not the socket's.
                head.failed(error)
            raise
        if sent == 0:
            raise OSError("the file ends before the slice that was to be sent")
        return sent

    def _mark_sent(self, sent: int) -> None:
        parts = self.parts
        sent += self._sent
        while parts:
            part = parts[0]
            if isinstance(part, IN_MEMORY):
                size = len(part)
                if sent < size:
                    break
                self.occupied_bytes -= size
            else:
                size = part.size
                if sent < size:
                    break
                self.occupied_bytes -= SLICE_COST_BYTES
                part.release()
            parts.popleft()
            sent -= size
            if sent == 0:
                break
        self._sent = sent

    def drop(self) -> None:
        """Drop all unsent parts, since the connection is closed."""
        release(self.parts)
        self.parts.clear()
        self.occupied_bytes = 0


class TlsSendQueue(SendQueue):
    """A queue for TLS, which takes neither several parts nor a file: small parts are joined and slices are read, up to
    four records at a time.

    Bytes that OpenSSL was given and did not take must be given again unchanged. So a chunk is kept until all of it is
    taken.
    """

    __slots__ = ("_buffer", "_chunk", "_pool", "_transport")

    def __init__(self, transport: TlsTransport, pool: BufferPool) -> None:
        self._transport = transport
        self._pool = pool
        # Invariant: the chunk follows the sent bytes, and is a part of the buffer or of the first part.
        self._chunk = memoryview(b"")
        self._buffer: Buffer | None = None
        self._begin()

    def send(self) -> int:
        """Send the bytes that the transport takes, up to the limit of a turn. Returns their number.

        Raises OSError if the connection is broken or a slice cannot be read.
        """
        left = _ENCRYPT_BYTES
        try:
            while self.parts and left > 0:
                left -= self._send_some()
        except (BlockingIOError, InterruptedError):
            pass
        if not self._chunk:
            self._give_back()
        return _ENCRYPT_BYTES - left

    def _send_some(self) -> int:
        if not self._chunk:
            self._chunk = self._gathered()
        sent = self._transport.send(self._chunk) if self._chunk else 0
        self._chunk = self._chunk[sent:]
        self._mark_sent(sent)
        return sent

    def _gathered(self) -> memoryview:
        """Return the next bytes to send over TLS, joined from small parts and read from slices; empty if the first part
        is empty.
        """
        parts, head = self.parts, self.parts[0]
        if isinstance(head, IN_MEMORY) and (len(parts) == 1 or len(head) - self._sent >= RECORD_BYTES):
            return memoryview(head)[self._sent :]
        if self._buffer is None:
            self._buffer = self._pool.acquire(_GATHERED_BYTES)
        space = memoryview(self._buffer)[:_GATHERED_BYTES]
        filled, skipped = 0, self._sent
        for part in parts:
            if isinstance(part, IN_MEMORY):
                piece = memoryview(part)[skipped : skipped + _GATHERED_BYTES - filled]
                wanted = read = len(piece)
                space[filled : filled + read] = piece
            else:
                wanted = min(part.size - skipped, _GATHERED_BYTES - filled)
                read = _read_slice(part, skipped, space[filled : filled + wanted]) if wanted else 0
            filled += read
            if read < wanted or filled == _GATHERED_BYTES:
                break
            skipped = 0
        return space[:filled]

    def _give_back(self) -> None:
        self._chunk = memoryview(b"")
        if self._buffer is not None:
            self._pool.release(self._buffer)
            self._buffer = None

    def drop(self) -> None:
        """Drop all unsent parts, since the connection is closed."""
        self._give_back()
        super().drop()


def _read_slice(part: SliceLike, skipped: int, space: memoryview) -> int:
    """Read the rest of a file slice, after its first `skipped` bytes, into `space`. Returns the number of read bytes.
    Raises OSError.
    """
    try:
        read = os.preadv(part.fileno(), [space], part.position + skipped)
    except OSError as error:
        if error.errno == errno.EIO:
            part.failed(error)
        raise
    if read == 0:
        raise OSError("the file ends before the slice that was to be sent")
    return read

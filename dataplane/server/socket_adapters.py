"""The adapter between a connection and its socket, which is plain or carries TLS."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from ...network.tls.stream import TlsStream
from ...network.tls.transport import EventLoop, TlsTransport
from .buffers import BufferPool
from .sending import SendQueue, TlsSendQueue

MARK_BYTES: Final = 32 * 1024
"""The maximum mark. Linux gives a socket room for four times as much, so the peer never has to stop."""


class StreamSocket(Protocol):
    """A connected non-blocking socket, plain or with TLS, as a connection receives from it."""

    def fileno(self) -> int: ...
    def recv_into(self, buffer: memoryview, /) -> int: ...
    def send(self, data: bytes, /) -> int: ...
    def close(self) -> None: ...


class Readiness(Protocol):
    """An event loop or similar object that calls back when a descriptor can be read or written."""

    def add_reader(self, fd: int, callback: Callable[[], object], /) -> object: ...
    def remove_reader(self, fd: int, /) -> object: ...
    def add_writer(self, fd: int, callback: Callable[[], object], /) -> object: ...
    def remove_writer(self, fd: int, /) -> object: ...


class LowWaterMark:
    """The number of bytes that must arrive before a connection is read (SO_RCVLOWAT).

    Without it the small pieces of a large frame would each cause a wake-up: a client that encrypts sends separate
    pieces of memory as separate TLS records, a kilobyte or less at a time. With SO_RCVLOWAT the kernel reports many
    together. It reports at once when the peer has sent its last byte, or the connection is broken.
    """

    __slots__ = ("_bytes", "_socket")

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._bytes = 1

    def expect(self, missing_bytes: int) -> None:
        """Set the low-water mark for a peer that owes at least `missing_bytes` of a frame, since before that there is
        little to do.
        """
        mark = MARK_BYTES if missing_bytes >= MARK_BYTES else 1
        if mark != self._bytes:
            self._bytes = mark
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, mark)


class SocketAdapter(NamedTuple):
    """The objects through which one connection uses its socket: the stream, the send queue, the readiness callbacks and
    the low-water mark.
    """

    socket: StreamSocket
    readiness: Readiness
    out: SendQueue
    pending: Callable[[], int] = int
    """Number of received bytes that the kernel does not report any more."""
    mark: LowWaterMark | None = None
    """Low-water mark of the socket; None without TLS, as the kernel joins the bytes that a peer sends at once."""


def plain_adapter(sock: socket.socket, loop: Readiness) -> SocketAdapter:
    """Return the adapter of a plain socket."""
    return SocketAdapter(sock, loop, SendQueue(sock))


def tls_adapter(sock: socket.socket, stream: TlsStream, loop: EventLoop, pool: BufferPool) -> SocketAdapter:
    """Return the adapter of a TLS stream on `sock` whose handshake is complete."""
    transport = TlsTransport(stream, loop)
    return SocketAdapter(
        transport, transport, TlsSendQueue(transport, pool), transport.pending, LowWaterMark(sock)
    )

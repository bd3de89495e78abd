"""The adapter between a connection and its socket, which is plain or carries TLS."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import NamedTuple, Protocol

from ...network.tls.stream import TlsStream
from ...network.tls.transport import EventLoop, TlsTransport
from .buffers import BufferPool
from .low_water_mark import LowWaterMark
from .sending import SendQueue, TlsSendQueue


class StreamSocket(Protocol):
    """A connected non-blocking socket."""

    def fileno(self) -> int: ...
    def recv_into(self, buffer: memoryview, /) -> int: ...
    def send(self, data: bytes, /) -> int: ...
    def close(self) -> None: ...


class Readiness(Protocol):
    """An object that calls back when a descriptor can be read or written, such as an event loop."""

    def add_reader(self, fd: int, callback: Callable[[], object], /) -> object: ...
    def remove_reader(self, fd: int, /) -> object: ...
    def add_writer(self, fd: int, callback: Callable[[], object], /) -> object: ...
    def remove_writer(self, fd: int, /) -> object: ...


class SocketAdapter(NamedTuple):
    """The objects by which a connection receives, sends, and waits."""

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

"""What a connection receives from, sends into, and waits for: a socket of its own, or TLS on top of one."""

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
    """A connected socket that does not block."""

    def fileno(self) -> int: ...
    def recv_into(self, buffer: memoryview, /) -> int: ...
    def send(self, data: bytes, /) -> int: ...
    def close(self) -> None: ...


class Readiness(Protocol):
    """Calls back when a descriptor can be read or written; an event loop does."""

    def add_reader(self, fd: int, callback: Callable[[], object], /) -> object: ...
    def remove_reader(self, fd: int, /) -> object: ...
    def add_writer(self, fd: int, callback: Callable[[], object], /) -> object: ...
    def remove_writer(self, fd: int, /) -> object: ...


class SocketAdapter(NamedTuple):
    """What a connection receives from, sends into, and waits for."""

    socket: StreamSocket
    readiness: Readiness
    out: SendQueue
    pending: Callable[[], int] = int
    """How many bytes have come of which the kernel knows no more."""
    mark: LowWaterMark | None = None
    """None where the kernel brings together what a peer sends at once."""


def plain_adapter(sock: socket.socket, loop: Readiness) -> SocketAdapter:
    """The socket as it is."""
    return SocketAdapter(sock, loop, SendQueue(sock))


def tls_adapter(sock: socket.socket, stream: TlsStream, loop: EventLoop, pool: BufferPool) -> SocketAdapter:
    """A stream on `sock` whose handshake is done."""
    transport = TlsTransport(stream, loop)
    return SocketAdapter(
        transport, transport, TlsSendQueue(transport, pool), transport.pending, LowWaterMark(sock)
    )

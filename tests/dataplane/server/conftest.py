"""A server of bare frames, for tests of connections, and a raw client to torment it with."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack

import pytest

from ottla.dataplane.security.peer_session import PeerSession
from ottla.dataplane.security.principal import ANONYMOUS
from ottla.dataplane.server import (
    BufferPool,
    ClientConnection,
    ClientRequest,
    ConnectionLimits,
    ListeningSocket,
)
from ottla.dataplane.server.receive_budget import ReceiveBudget
from ottla.dataplane.server.request_times import RequestTimes
from ottla.dataplane.server.socket_adapters import SocketAdapter, plain_adapter, tls_adapter
from ottla.dataplane.server.unread_answers import UNREAD_BYTES_MAX, UnreadAnswers
from ottla.network.tls.handshake import begin_tls
from ottla.network.tls.stream import TlsStream
from tests.dataplane.event_loop import event_loop_policy as event_loop_policy


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


class FrameServer:
    """Hands every frame to `on_frame(request, frame)`; frames here are opaque bytes of at least eight."""

    def __init__(
        self,
        on_frame: Callable[[ClientRequest, memoryview], None],
        *,
        limits: ConnectionLimits | None = None,
        budget_bytes: int = 64 * 1024 * 1024,
        tls: ssl.SSLContext | None = None,
        unread_bytes: int = UNREAD_BYTES_MAX,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.pool = BufferPool()
        self.budget: ReceiveBudget[ClientConnection] = ReceiveBudget(budget_bytes)
        self.unread = UnreadAnswers(unread_bytes)
        self.connections: set[ClientConnection] = set()
        self._limits = limits or ConnectionLimits()
        self._on_frame = on_frame
        self._tls = tls
        self._shaking: set[asyncio.Task[None]] = set()
        self.listener = ListeningSocket(
            "TEST", "127.0.0.1", 0, self._accept, backlog=512, loop=self.loop, position=lambda: -1
        )
        self.listener.start()

    def _accept(self, listener: ListeningSocket, sock: socket.socket, peer: tuple[str, int]) -> None:
        if self._tls is None:
            self._serve(plain_adapter(sock, self.loop), listener, peer)
            return
        task = self.loop.create_task(self._shake_hands(listener, sock, peer, self._tls))
        self._shaking.add(task)
        task.add_done_callback(self._shaking.discard)

    async def _shake_hands(
        self, listener: ListeningSocket, sock: socket.socket, peer: tuple[str, int], tls: ssl.SSLContext
    ) -> None:
        stream = await begin_tls(TlsStream(sock, tls))
        self._serve(tls_adapter(sock, stream, self.loop, self.pool), listener, peer)

    def _serve(self, adapter: SocketAdapter, listener: ListeningSocket, peer: tuple[str, int]) -> None:
        self.connections.add(
            ClientConnection(
                adapter,
                PeerSession(ANONYMOUS, peer[0], listener.name),
                peer[1],
                loop=self.loop,
                pool=self.pool,
                budget=self.budget,
                limits=self._limits,
                times=RequestTimes(),
                unread=self.unread,
                on_frame=self._dispatch,
                on_closed=self.connections.discard,
                number=len(self.connections) + 1,
                birth=listener.empty_at,
            )
        )

    def _dispatch(self, connection: ClientConnection, body: memoryview) -> None:
        request = ClientRequest(connection, 0, 0, 0, None, self.loop.time())
        connection.expect(request)
        self._on_frame(request, body)

    async def connect(
        self, tls: ssl.SSLContext | None = None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.listener.port, ssl=tls)

    def close(self) -> None:
        self.listener.close()
        for connection in list(self.connections):
            connection.close()


def start(cleanup: ExitStack, server: FrameServer) -> FrameServer:
    """Start the server, and close it at the end of the test."""
    cleanup.callback(server.close)
    return server


def echo(request: ClientRequest, body: memoryview) -> None:
    """Answer a frame with itself."""
    request.connection.answer(request, (frame(bytes(body)),))


@pytest.fixture
async def cleanup() -> AsyncIterator[ExitStack]:
    """Run the callbacks that tests register, before their event loop is closed."""
    with ExitStack() as stack:
        yield stack


async def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait for a condition; fails after `seconds`."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, "the condition did not come true"
        await asyncio.sleep(0.002)


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)

"""A large request in small TLS records does not wake the broker for each of them, and delays no other client."""

from __future__ import annotations

import asyncio
import fcntl
import select
import socket
import struct
import termios
from contextlib import ExitStack, closing
from datetime import UTC, datetime

from ottla.dataplane.security.listener_tls import ListenerTls, reached_by_clients
from ottla.dataplane.security.tls_loading import load_tls
from ottla.dataplane.security.tls_settings import TlsSettings
from ottla.dataplane.server import ClientConnection, HandlerTable, Server, ServerConfig
from ottla.dataplane.server.socket_adapters import MARK_BYTES
from ottla.network.tls.contexts import client_context, server_context
from ottla.network.tls.settings import TlsRules
from ottla.protocol.settings.security_protocol import SecurityProtocol
from tests.network.tls.certificates import Authority, keys_of, trusting

from .conftest import FrameServer, echo, frame, read_frame, start, until
from .test_memory_for_requests import Handlers, request_of
from .tls_peer import TlsPeer

AUTHORITY = Authority()
OWN, CA = keys_of(AUTHORITY.issue("localhost", "127.0.0.1")), trusting(AUTHORITY.pem)
FRAME = frame(bytes(range(256)) * 1000)
BEGUN, SMALL = 20_000, 1_000
"""Bytes of the frame that come first, and bytes that come then in one record."""


def serving(cleanup: ExitStack) -> FrameServer:
    return start(cleanup, FrameServer(echo, tls=server_context(TlsRules(), OWN, CA)))


def dialling() -> TlsPeer:
    return TlsPeer(client_context(TlsRules(), None, CA))


async def begun(server: FrameServer, peer: TlsPeer) -> ClientConnection:
    """Return a connection whose frame has begun, once the broker has read all data sent so far."""
    await peer.connect(server.listener.port)
    await peer.send(FRAME[:BEGUN])
    await until(lambda: [grant.arrived_bytes for grant in server.budget.grants()] != [])
    (connection,) = server.connections
    await until(lambda: unread_bytes(connection) == 0 and mark_of(connection) == MARK_BYTES)
    return connection


def unread_bytes(connection: ClientConnection) -> int:
    """Return the number of unread bytes in the connection's socket."""
    (size,) = struct.unpack("i", fcntl.ioctl(connection.fileno(), termios.FIONREAD, b"\0" * 4))
    return int(size)


def mark_of(connection: ClientConnection) -> int:
    with closing(socket.fromfd(connection.fileno(), socket.AF_INET, socket.SOCK_STREAM)) as again:
        return again.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT)


def is_called(connection: ClientConnection) -> bool:
    """Return whether the kernel would wake the loop for the peer's data."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))


async def test_small_records_of_a_large_frame_call_nobody(cleanup: ExitStack) -> None:
    server = serving(cleanup)
    async with dialling() as peer:
        connection = await begun(server, peer)
        at = BEGUN
        for _ in range(8):
            await peer.send(FRAME[at : at + SMALL])
            at += SMALL
        await until(lambda: unread_bytes(connection) > 8 * SMALL)
        assert not is_called(connection)
        await peer.send(FRAME[at : at + MARK_BYTES], record=SMALL)
        await until(lambda: unread_bytes(connection) < MARK_BYTES)
        await peer.send(FRAME[at + MARK_BYTES :], record=SMALL)
        assert frame(await peer.read_frame()) == FRAME
        await until(lambda: mark_of(connection) == 1)
        await peer.send(frame(b"a small one"))
        assert await peer.read_frame() == b"a small one"


async def test_a_frame_that_lacks_little_is_read_as_it_comes(cleanup: ExitStack) -> None:
    """The broker might otherwise wait for the frame's end although it has arrived."""
    server = serving(cleanup)
    async with dialling() as peer:
        await begun(server, peer)
        (connection,) = server.connections
        await peer.send(FRAME[BEGUN : -MARK_BYTES // 2], record=SMALL)
        await until(lambda: mark_of(connection) == 1)
        for at in range(len(FRAME) - MARK_BYTES // 2, len(FRAME), SMALL):
            await peer.send(FRAME[at : at + SMALL])
            await until(lambda: unread_bytes(connection) == 0)
        assert frame(await peer.read_frame()) == FRAME


async def test_a_peer_that_ends_within_a_frame_is_noticed(cleanup: ExitStack) -> None:
    server = serving(cleanup)
    async with dialling() as peer:
        await begun(server, peer)
        await peer.send(FRAME[BEGUN : BEGUN + SMALL])
        await peer.say_end()
        peer.sock.shutdown(socket.SHUT_WR)
        await until(lambda: not server.connections, 10)
    assert server.budget.held_bytes == 0


async def test_a_peer_that_is_cut_off_within_a_frame_is_noticed(cleanup: ExitStack) -> None:
    server = serving(cleanup)
    async with dialling() as peer:
        await begun(server, peer)
        peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    await until(lambda: not server.connections, 10)
    assert server.budget.held_bytes == 0


async def test_who_looks_finds_what_has_come(cleanup: ExitStack) -> None:
    server = serving(cleanup)
    async with dialling() as peer:
        connection = await begun(server, peer)
        (grant,) = server.budget.grants()
        arrived = grant.arrived_bytes
        await peer.send(FRAME[BEGUN : BEGUN + SMALL])
        await until(lambda: unread_bytes(connection) > SMALL)
        connection.look()
        assert grant.arrived_bytes == arrived + SMALL


async def test_a_slow_peer_is_not_taken_for_one_that_stalls(cleanup: ExitStack) -> None:
    """Others wait for its memory, so it is judged by its progress, for which the kernel would not wake the loop."""
    server = Server(HandlerTable(Handlers()), ServerConfig(receive_budget_bytes=256 * 1024))
    settings = TlsSettings(
        "CLIENTS", TlsRules(), OWN.source, CA.source, "DEFAULT", "ssl.principal.mapping.rules"
    )
    tls = ListenerTls(load_tls(settings, reached_by_clients("localhost"), datetime.now(UTC)))
    port = server.listen("CLIENTS", "127.0.0.1", 0, SecurityProtocol.SSL, tls).port
    server.start()
    cleanup.callback(server.close)
    request = request_of(100_000)
    async with dialling() as slow:
        await slow.connect(port)
        await slow.send(request[:60_000])
        await until(lambda: server.budget.held_bytes > 100_000)
        context = client_context(TlsRules(), None, CA)
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=context, server_hostname="localhost"
        )
        writer.write(request_of(200_000))
        await until(lambda: server.budget.waiting == 1)
        for at in range(60_000, 90_000, SMALL):
            await slow.send(request[at : at + SMALL])
            await asyncio.sleep(0.2)
        assert len(server.connections) == 2
        await slow.send(request[90_000:])
        assert struct.pack(">i", 100_000) in await slow.read_frame()
        assert struct.pack(">i", 200_000) in await asyncio.wait_for(read_frame(reader), 30)
        writer.close()

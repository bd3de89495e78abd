"""TLS connections: records split anywhere, peers that do not read, new keys, and every kind of end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import random
import socket
import ssl
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from ottla.dataplane.security.listener_tls import ListenerTls, reached_by_clients
from ottla.dataplane.security.tls_loading import load_tls
from ottla.dataplane.security.tls_settings import TlsSettings
from ottla.dataplane.server import (
    ClientRequest,
    ConnectionLimits,
    HandlerTable,
    Server,
    ServerConfig,
    handles,
)
from ottla.dataplane.server.admissions import AdmissionLimits
from ottla.dataplane.server.authentication import AuthenticationSettings
from ottla.dataplane.server.handshake_log import HandshakeLog
from ottla.dataplane.server.handshakes import STEPS_PER_TURN
from ottla.dataplane.server.peer_close import notify_closed_peers
from ottla.network.tls.contexts import client_context, server_context
from ottla.network.tls.handshake import HANDSHAKE_FAILURE
from ottla.network.tls.settings import ClientAuth, TlsRules
from ottla.network.tls.stream import TlsStream
from ottla.protocol.messages.groups import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.headers import decode_response, encode_request
from ottla.protocol.settings.security_protocol import SecurityProtocol
from tests.network.tls.certificates import Authority, keys_of, trusting

from .conftest import FrameServer, echo, frame, read_frame, start, until
from .test_connection import FileRange
from .tls_peer import TlsPeer

AUTHORITY = Authority()
OWN, CA = keys_of(AUTHORITY.issue("localhost", "127.0.0.1")), trusting(AUTHORITY.pem)


def serving(version: str = "TLSv1.3", auth: ClientAuth = ClientAuth.NONE) -> ssl.SSLContext:
    return server_context(TlsRules((version,), client_auth=auth), OWN, CA)


def dialling() -> ssl.SSLContext:
    return client_context(TlsRules(), None, CA)


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
@pytest.mark.parametrize("seed", range(8))
async def test_frames_arrive_whole_however_records_are_cut(
    cleanup: ExitStack, seed: int, version: str
) -> None:
    rng = random.Random(seed)
    server = start(cleanup, FrameServer(echo, tls=serving(version)))
    bodies = [
        rng.randbytes(rng.choice([8, 9, 100, 4096, 10_000, 16_380, 16_384, 70_000, 300_000]))
        for _ in range(30)
    ]
    async with TlsPeer(dialling()) as peer:
        await peer.connect(server.listener.port)

        async def send() -> None:
            stream = b"".join(map(frame, bodies))
            at = 0
            while at < len(stream):
                size, record = rng.choice([1, 5, 1000, 20_000, 300_000]), rng.choice([1000, 5000, 16_384])
                await peer.send(stream[at : at + size], record=record, piece=rng.choice([7, 1000, 1 << 20]))
                at += size

        sending = asyncio.create_task(send())
        for body in bodies:
            assert await peer.read_frame() == body
        await sending
    await until(lambda: not server.connections)
    assert server.pool.lent_bytes == 0


async def test_one_byte_at_a_time(cleanup: ExitStack) -> None:
    server = start(cleanup, FrameServer(echo, tls=serving()))
    async with TlsPeer(dialling()) as peer:
        await peer.connect(server.listener.port)
        await peer.send(frame(b"one by one") + frame(b"and another"), record=1, piece=1)
        assert [await peer.read_frame() for _ in range(2)] == [b"one by one", b"and another"]


async def test_what_is_decrypted_and_not_taken_never_stalls(cleanup: ExitStack) -> None:
    """All of the data is in the last records: the kernel never reports it again."""
    waiting: list[tuple[ClientRequest, bytes]] = []

    def keep(request: ClientRequest, body: memoryview) -> None:
        waiting.append((request, bytes(body)))
        if len(waiting) % 5 == 0:
            request.connection.mute(5)

    limits = ConnectionLimits(unanswered_requests_max=1)
    server = start(cleanup, FrameServer(keep, limits=limits, tls=serving()))
    bodies = [bytes([number]) * size for number, size in enumerate([10_000, 9, 16_000, 30_000, 8] * 30)]
    async with TlsPeer(dialling()) as peer:
        await peer.connect(server.listener.port)
        sending = asyncio.create_task(peer.send(b"".join(map(frame, bodies))))
        for body in bodies:
            await until(lambda: bool(waiting))
            request, received = waiting.pop()
            assert received == body
            request.connection.answer(request, (frame(received),))
            assert await peer.read_frame() == body
        await sending


async def test_many_small_frames_in_one_record(cleanup: ExitStack) -> None:
    server = start(cleanup, FrameServer(echo, tls=serving()))
    async with TlsPeer(dialling()) as peer:
        await peer.connect(server.listener.port)
        await peer.send(b"".join(frame(b"%08d" % number) for number in range(1300)))
        assert [await peer.read_frame() for _ in range(1300)] == [b"%08d" % number for number in range(1300)]


async def test_a_peer_that_takes_little_gets_every_byte_once(cleanup: ExitStack, tmp_path: Path) -> None:
    """Sends stop within records repeatedly; data that was passed to OpenSSL must be passed again unchanged."""
    path = tmp_path / "log"
    path.write_bytes(random.Random(1).randbytes(400_000))
    data, fd, released = path.read_bytes(), os.open(path, os.O_RDONLY), []
    cleanup.callback(os.close, fd)
    chance = random.Random(2)
    expected = bytearray()

    def answer(request: ClientRequest, body: memoryview) -> None:
        parts: list[object] = []
        for _ in range(chance.randint(1, 6)):
            size = chance.choice([0, 1, 100, 5000, 16_384, 40_000, 150_000])
            at = chance.randrange(len(data) - size)
            in_memory = chance.random() < 0.5
            parts.append(data[at : at + size] if in_memory else FileRange(fd, at, size, released))
            expected.extend(data[at : at + size])
        request.connection.answer(request, cast(list[bytes], parts))

    server = FrameServer(answer, tls=serving(), limits=ConnectionLimits(queued_bytes_max=100_000))
    start(cleanup, server)
    server.listener._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    async with TlsPeer(dialling(), receive_buffer=4096) as peer:
        await peer.connect(server.listener.port)
        for _ in range(60):
            await peer.send(frame(b"more, please"))
        await until(lambda: any(client.is_blocked_on_peer for client in server.connections))
        received = bytearray()
        while len(received) < len(expected):
            received += await peer.read(min(chance.choice([1, 1000, 70_000]), len(expected) - len(received)))
            await asyncio.sleep(0)
        (connection,) = server.connections
        await until(lambda: not connection.owes_replies and not connection.is_blocked_on_peer)
        received += await peer.read(len(expected) - len(received))
        assert received == expected
        assert connection.held_bytes == 0
    await until(lambda: not server.connections)
    assert server.pool.lent_bytes == 0


async def test_slices_are_released_when_the_client_goes_away(cleanup: ExitStack, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(bytes(50_000_000))
    fd, released = os.open(path, os.O_RDONLY), []
    cleanup.callback(os.close, fd)

    def answer(request: ClientRequest, body: memoryview) -> None:
        request.connection.answer(
            request, cast(list[bytes], [b"head", FileRange(fd, 0, 50_000_000, released)])
        )

    server = start(cleanup, FrameServer(answer, tls=serving()))
    async with TlsPeer(dialling()) as peer:
        await peer.connect(server.listener.port)
        await peer.send(frame(b"all of it"))
        await until(lambda: any(client.is_blocked_on_peer for client in server.connections))
    await until(lambda: not server.connections)
    assert released == [0]
    assert server.pool.lent_bytes == 0


async def test_a_peer_asks_for_new_keys(cleanup: ExitStack) -> None:
    """`openssl s_client` does so for a line `K`; the broker has to write in order to read."""
    server = start(cleanup, FrameServer(echo, tls=serving()))
    client = await asyncio.create_subprocess_exec(
        "openssl", "s_client", "-connect", f"127.0.0.1:{server.listener.port}", "-tls1_3", "-brief",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert client.stdin is not None
    assert client.stdout is not None
    assert client.stderr is not None
    await until(lambda: bool(server.connections))
    for number in range(5):
        body = b"keys number %d" % number
        client.stdin.write(frame(body))
        assert await asyncio.wait_for(read_frame(client.stdout), 60) == body
        client.stdin.write(b"K\n")
        while b"KEYUPDATE" not in await asyncio.wait_for(client.stderr.readline(), 60):
            pass
    client.kill()
    await client.communicate()


# Ends


async def test_who_has_said_its_last_word_gets_its_replies(cleanup: ExitStack) -> None:
    held: list[ClientRequest] = []
    server = start(cleanup, FrameServer(lambda request, body: held.append(request), tls=serving()))
    async with TlsPeer(dialling()) as peer:
        await peer.connect(server.listener.port)
        await peer.send(frame(b"the last word"))
        await peer.say_end()
        await until(lambda: bool(held) and held[0].connection.half_closed)
        held[0].connection.answer(held[0], (frame(b"answered all the same"),))
        assert await peer.read_frame() == b"answered all the same"
        await until(lambda: not server.connections)


async def test_who_is_cut_off_is_gone(cleanup: ExitStack) -> None:
    """The end of TCP without the end of TLS may be an attacker's doing."""
    server = start(cleanup, FrameServer(lambda request, body: None, tls=serving()))
    async with TlsPeer(dialling()) as peer:
        await peer.connect(server.listener.port)
        await peer.send(frame(b"unanswered"))
        await until(lambda: any(client.owes_replies for client in server.connections))
        peer.sock.shutdown(socket.SHUT_WR)
        await until(lambda: not server.connections)


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
async def test_a_connection_that_is_closed_here_ends_in_tls(cleanup: ExitStack, version: str) -> None:
    server = start(cleanup, FrameServer(echo, tls=serving(version)))
    async with TlsPeer(dialling()) as peer:
        await peer.connect(server.listener.port)
        await peer.send(frame(b"once more"))
        assert await peer.read_frame() == b"once more"
        (connection,) = server.connections
        connection.close()
        with pytest.raises(EOFError):
            await peer.read(1)


@pytest.mark.parametrize("seed", range(3))
async def test_bytes_that_are_damaged_close_the_connection(cleanup: ExitStack, seed: int) -> None:
    chance = random.Random(seed)
    server = start(cleanup, FrameServer(echo, tls=serving()))
    async with TlsPeer(dialling()) as peer:
        await peer.connect(server.listener.port)
        data = bytearray(peer.encrypted(frame(b"x" * 1000)))
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        await peer.flush(data=bytes(data))
        await peer.flush(data=bytes(40_000))
        await until(lambda: not server.connections)


# Handshakes, on a whole server


class Handlers:
    """A handler that reports the user."""

    def __init__(self) -> None:
        self.seen: list[ClientRequest] = []

    @handles(HeartbeatRequest, 0, 4)
    def heartbeat(self, request: ClientRequest, message: HeartbeatRequest) -> HeartbeatResponse:
        self.seen.append(request)
        return HeartbeatResponse()


HEARTBEAT = encode_request(HeartbeatRequest(), 4, 1, None)


def whole_server(cleanup: ExitStack, tls: ListenerTls | None, **config: int) -> tuple[Server, Handlers, int]:
    handlers = Handlers()
    server = Server(HandlerTable(handlers), ServerConfig(**config))
    kind = SecurityProtocol.PLAINTEXT if tls is None else SecurityProtocol.SSL
    port = server.listen("CLIENTS", "127.0.0.1", 0, kind, tls).port
    server.start()
    cleanup.callback(server.close)
    return server, handlers, port


def listener_tls(auth: ClientAuth = ClientAuth.NONE, rules: str = "DEFAULT") -> ListenerTls:
    chosen = TlsRules(client_auth=auth)
    settings = TlsSettings("CLIENTS", chosen, OWN.source, CA.source, rules, "ssl.principal.mapping.rules")
    return ListenerTls(load_tls(settings, reached_by_clients("localhost"), datetime.now(UTC)))


async def asked(port: int, context: ssl.SSLContext) -> None:
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=context, server_hostname="localhost"
    )
    writer.write(HEARTBEAT)
    assert decode_response(HeartbeatRequest, await read_frame(reader), 4)[1].error_code == 0
    writer.close()


@pytest.mark.parametrize(
    ("auth", "shows", "rules", "principal"),
    [
        (ClientAuth.NONE, True, "DEFAULT", "User:ANONYMOUS"),
        (ClientAuth.REQUESTED, False, "DEFAULT", "User:ANONYMOUS"),
        (ClientAuth.REQUIRED, True, "DEFAULT", "User:CN=Ann,OU=Testing cert \\#x,O=Firm"),
        (ClientAuth.REQUESTED, True, "RULE:^CN=(.*?),.*$/$1/L", "User:ann"),
    ],
)
async def test_the_session_names_the_principal_of_the_certificate(
    cleanup: ExitStack, auth: ClientAuth, shows: bool, rules: str, principal: str
) -> None:
    server, handlers, port = whole_server(cleanup, listener_tls(auth, rules))
    keys = keys_of(AUTHORITY.issue("client", common_name="Ann", organization="Firm")) if shows else None
    await asked(port, client_context(TlsRules(), keys, CA))
    session = handlers.seen[0].session
    expected = principal.partition("OU=Testing")[0]
    assert str(session.principal).startswith(expected)
    assert (session.security_protocol, session.listener, session.host) == ("SSL", "CLIENTS", "127.0.0.1")
    await until(lambda: not server.connections)


async def test_a_certificate_that_no_rule_names_is_turned_away(
    cleanup: ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    server, _, port = whole_server(cleanup, listener_tls(ClientAuth.REQUIRED, "RULE:CN=nobody/x/"))
    keys = keys_of(AUTHORITY.issue("client", common_name="Ann"))
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError, ssl.SSLError)):
        await asked(port, client_context(TlsRules(), keys, CA))
    await until(lambda: not server.handshakes)
    assert "no rule applies to 'CN=Ann" in caplog.text
    assert not server.connections


async def test_who_does_not_shake_hands_in_time_is_cut_off(cleanup: ExitStack) -> None:
    server, _, port = whole_server(cleanup, listener_tls(), handshake_timeout_ms=200)
    silent, writer = await asyncio.open_connection("127.0.0.1", port)
    begun, another = await asyncio.open_connection("127.0.0.1", port)
    another.write(b"\x16\x03\x01\x02\x00\x01")
    await until(lambda: len(server.handshakes) == 2)
    assert await asyncio.wait_for(silent.read(), 60) == await asyncio.wait_for(begun.read(), 60) == b""
    await until(lambda: not server.handshakes)
    writer.close()
    another.close()
    await asked(port, dialling())


async def test_handshakes_are_bounded_and_count_as_connections(cleanup: ExitStack) -> None:
    server, _, port = whole_server(cleanup, listener_tls(), max_unauthenticated=5)
    opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(9)]
    for number in range(4):
        assert await asyncio.wait_for(opened[number][0].read(), 60) == b"", "the oldest go"
    assert len(server.handshakes) == 5
    await asked(port, dialling())
    server.admissions.limits = AdmissionLimits(most_of_address=4)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    assert await asyncio.wait_for(reader.read(), 60) == b""
    for _, stream in [*opened, (reader, writer)]:
        stream.close()
    await until(lambda: not server.handshakes)
    await until(lambda: not server.admissions.open)


def with_login(server: Server, timeout_ms: int) -> None:
    """Make the listener require a login, too."""
    server.authentication = {"CLIENTS": AuthenticationSettings({}, timeout_ms=timeout_ms)}


async def test_the_time_for_a_login_includes_the_handshake(cleanup: ExitStack) -> None:
    server, _, port = whole_server(cleanup, listener_tls(), handshake_timeout_ms=600_000)
    with_login(server, timeout_ms=100)
    silent, writer = await asyncio.open_connection("127.0.0.1", port)
    assert await asyncio.wait_for(silent.read(), 60) == b""
    writer.close()
    with_login(server, timeout_ms=2000)
    early = TlsPeer(dialling())
    await early.connect_without_handshake(port)
    await until(lambda: len(server.handshakes) == 1)
    await asyncio.sleep(0.2)
    ended = []
    async with TlsPeer(dialling()) as late, early:
        await late.connect(port)
        await early.shake_hands()
        await until(lambda: len(server.connections) == 2)
        for name, connection in zip(("late", "early"), list(server.connections), strict=True):
            connection.call_on_close(partial(ended.append, name))
        await until(lambda: len(ended) == 2)
    assert ended == ["early", "late"], "the first connection has less time left"


async def test_who_has_shaken_hands_is_a_stranger_until_the_login(cleanup: ExitStack) -> None:
    """The peer counts as unauthenticated, and new connections replace each other before it, but not for ever if it
    makes no progress.
    """
    server, _, port = whole_server(cleanup, listener_tls(), max_unauthenticated_per_ip=2)
    with_login(server, timeout_ms=600_000)
    async with TlsPeer(dialling()) as shaken, TlsPeer(dialling()) as second:
        await shaken.connect(port)
        await until(lambda: len(server.connections) == 1)
        (first,) = server.connections
        others = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        assert await others[0][0].read() == b"", "the older of those that have said nothing"
        assert not first.closed
        await second.connect(port)
        await until(lambda: len(server.connections) == 2 and not server.handshakes)
        others.append(await asyncio.open_connection("127.0.0.1", port))
        await until(lambda: first.closed)
        assert len(server.connections) == 1
    for _, stream in others:
        stream.close()


async def test_handshakes_leave_the_loop_to_others(
    cleanup: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, port = whole_server(cleanup, listener_tls())
    turn, steps = 0, []
    step = TlsStream.step

    def counted(stream: TlsStream) -> bool:
        steps.append(turn)
        return step(stream)

    monkeypatch.setattr(TlsStream, "step", counted)

    async def count_turns() -> None:
        nonlocal turn
        while True:
            await asyncio.sleep(0)
            turn += 1

    counting = asyncio.create_task(count_turns())
    await asyncio.gather(*(asked(port, dialling()) for _ in range(40)))
    counting.cancel()
    assert len(steps) >= 80
    assert max(steps.count(number) for number in steps) <= STEPS_PER_TURN + 1


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
async def test_a_handshake_goes_on_when_the_socket_takes_what_there_is_to_say(
    cleanup: ExitStack, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    """The server sends last in TLS 1.2, the client in TLS 1.3."""
    flush, calls, late = TlsStream.flush, 0, []

    def two_of_three_fail(stream: TlsStream) -> bool:
        nonlocal calls
        calls += 1
        if calls % 3:
            late.append(stream)
            return False
        return flush(stream)

    monkeypatch.setattr(TlsStream, "flush", two_of_three_fail)
    server, _, port = whole_server(cleanup, listener_tls())
    for _ in range(3):
        await asked(port, client_context(TlsRules((version,)), None, CA))
    assert len(late) >= 6
    await until(lambda: not server.connections)


async def test_a_peer_that_hangs_up_before_it_takes_the_answer_is_forgotten(
    cleanup: ExitStack, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    refused, is_late = 0, False

    def broken(_stream: TlsStream) -> bool:
        nonlocal refused
        if is_late:
            raise ConnectionResetError("reset")
        refused += 1
        return False

    monkeypatch.setattr(TlsStream, "flush", broken)
    server, _, port = whole_server(cleanup, listener_tls())
    caplog.set_level(logging.INFO)
    async with TlsPeer(dialling()) as peer:
        await peer.connect_without_handshake(port)
        shaking = asyncio.create_task(peer.shake_hands())
        await until(lambda: refused > 2)
        is_late = True
        await until(lambda: not server.handshakes)
        await until(lambda: not server.admissions.open)
        assert server.handshakes.log.hang_ups == 1
        with pytest.raises((OSError, EOFError)):
            await shaking


@pytest.mark.parametrize(
    ("said", "guess"),
    [
        (HEARTBEAT, "this looks like Kafka's protocol without TLS"),
        (b"GET / HTTP/1.1\r\n\r\n", "this looks like HTTP"),
        (b"SSH-2.0", "it does not speak TLS"),
    ],
)
async def test_what_is_no_tls_is_named(
    cleanup: ExitStack, caplog: pytest.LogCaptureFixture, said: bytes, guess: str
) -> None:
    server, _, port = whole_server(cleanup, listener_tls())
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(said)
    assert await asyncio.wait_for(reader.read(), 60) == HANDSHAKE_FAILURE, "and no reset"
    await until(lambda: guess in caplog.text)
    writer.close()
    assert not server.connections


async def test_a_plain_listener_answers_tls_with_an_alert(
    cleanup: ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    _, _, port = whole_server(cleanup, None)
    with pytest.raises(ssl.SSLError, match=r"(?i)handshake.failure"):
        await asyncio.open_connection("127.0.0.1", port, ssl=dialling(), server_hostname="localhost")
    assert "this looks like TLS, which this listener does not speak" in caplog.text


async def test_a_handshake_that_fails_says_why(cleanup: ExitStack, caplog: pytest.LogCaptureFixture) -> None:
    _, _, port = whole_server(cleanup, listener_tls(ClientAuth.REQUIRED))
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError, ssl.SSLError)):
        await asked(port, dialling())
    await until(lambda: "peer did not return a certificate" in caplog.text)
    unauthenticated = keys_of(Authority().issue("client", common_name="Bob"))
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError, ssl.SSLError)):
        await asked(port, client_context(TlsRules(), unauthenticated, CA))
    await until(lambda: "the certificate is refused: unable to get local issuer certificate" in caplog.text)
    assert "CN=Bob" in caplog.text.partition("(it says that it is of ")[2]


async def test_a_last_request_that_waits_for_memory_is_not_taken_for_cut_off(cleanup: ExitStack) -> None:
    """The request's end is decrypted and not in the buffer, and the kernel has no more of it."""
    held: list[tuple[ClientRequest, bytes]] = []
    server = start(
        cleanup,
        FrameServer(
            lambda request, body: held.append((request, bytes(body))), tls=serving(), budget_bytes=64 * 1024
        ),
    )
    async with TlsPeer(dialling()) as first, TlsPeer(dialling()) as second:
        await first.connect(server.listener.port)
        await first.send(frame(bytes(50_000))[:40_000])
        await until(lambda: bool(list(server.budget.grants())))
        await second.connect(server.listener.port)
        await second.send(frame(b"y" * 20_000), record=10_002)
        await second.say_end()
        second.sock.shutdown(socket.SHUT_WR)
        await until(lambda: any(not client.is_reading for client in server.connections))
        notify_closed_peers({client for client in server.connections if not client.is_reading})
        await first.send(frame(bytes(50_000))[40_000:])
        await until(lambda: len(held) == 2)
        assert held[1][1] == b"y" * 20_000


async def test_peers_that_leave_during_a_handshake_are_counted_and_told_in_one_line(
    cleanup: ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    server, _, port = whole_server(cleanup, listener_tls())
    log = server.handshakes.log = HandshakeLog(math.inf)
    hello = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        dialling().wrap_bio(ssl.MemoryBIO(), hello, server_hostname="localhost").do_handshake()
    begun = hello.read()
    for said in [b"", begun[:20], begun] * 10:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(said)
        writer.close()
    await until(lambda: log.hang_ups == 30)
    assert server.handshakes.failures == 30
    assert not caplog.messages
    log.sweep(math.inf)
    (line,) = caplog.messages
    assert "30 peers have left during their TLS handshake: 30 on " in line


async def test_a_failure_is_told_once_for_its_address_and_reason(
    cleanup: ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    server, _, port = whole_server(cleanup, listener_tls())
    for said in [b"GET / HTTP/1.1\r\n\r\n"] * 20 + [b"\0\0\0\x10\0\x12\0\0"] * 5:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(said)
        await reader.read()
        writer.close()
    assert len([message for message in caplog.messages if "HTTP" in message]) == 1
    assert len([message for message in caplog.messages if "security.protocol" in message]) == 1
    caplog.clear()
    server.handshakes.log.sweep(math.inf)
    (line,) = caplog.messages
    assert "23 more TLS handshakes have failed for reasons that were told" in line

"""Connections under clients that behave, misbehave and vanish."""

from __future__ import annotations

import asyncio
import os
import random
import resource
import socket
import struct
from contextlib import ExitStack
from pathlib import Path

import pytest

from ottla.dataplane.server import ClientRequest, ConnectionLimits
from ottla.dataplane.server.buffers import SMALLEST_BYTES

from .conftest import FrameServer, echo, frame, read_frame, start, until


class FileRange:
    """A slice of a file, which counts its releases."""

    def __init__(self, fd: int, position: int, size: int, released: list[int]) -> None:
        self._fd, self.position, self.size, self._released = fd, position, size, released

    def failed(self, error: OSError) -> None:
        raise AssertionError(error)

    def fileno(self) -> int:
        return self._fd

    def release(self) -> None:
        self._released.append(self.position)


@pytest.mark.parametrize("seed", range(12))
async def test_frames_arrive_whole_however_they_are_split(cleanup: ExitStack, seed: int) -> None:
    rng = random.Random(seed)
    server = start(cleanup, FrameServer(echo))
    reader, writer = await server.connect()
    cleanup.callback(writer.close)
    bodies = [
        rng.randbytes(rng.choice([8, 9, 100, 4096, SMALLEST_BYTES - 4, SMALLEST_BYTES, 70_000, 600_000]))
        for _ in range(rng.randint(1, 40))
    ]
    stream = b"".join(map(frame, bodies))

    async def send() -> None:
        position = 0
        while position < len(stream):
            size = rng.choice([1, 3, 5, 1000, 20_000, 300_000])
            writer.write(stream[position : position + size])
            position += size
            if rng.random() < 0.5:
                await writer.drain()
                await asyncio.sleep(0)

    sending = asyncio.create_task(send())
    for body in bodies:
        assert await asyncio.wait_for(read_frame(reader), 60) == body, f"seed {seed}"
    await sending
    assert server.pool.lent_bytes == 0, "a connection without a partial frame holds no buffer"


async def test_replies_leave_in_request_order_whatever_order_they_are_made_in(cleanup: ExitStack) -> None:
    rng = random.Random(7)
    held: list[tuple[ClientRequest, bytes]] = []
    server = start(cleanup, FrameServer(lambda request, body: held.append((request, bytes(body)))))
    reader, writer = await server.connect()
    cleanup.callback(writer.close)
    bodies = [struct.pack(">q", i) for i in range(60)]
    writer.write(b"".join(map(frame, bodies)))
    await until(lambda: len(held) == 60)
    rng.shuffle(held)
    for request, body in held:
        if body == bodies[30]:
            request.no_reply()
        else:
            request.connection.answer(request, (frame(body),))
    for body in bodies[:30] + bodies[31:]:
        assert await asyncio.wait_for(read_frame(reader), 60) == body


async def test_slices_are_sent_between_bytes_and_released_once(cleanup: ExitStack, tmp_path: Path) -> None:
    content = random.Random(1).randbytes(9_000_000)
    (tmp_path / "segment").write_bytes(content)
    fd = os.open(tmp_path / "segment", os.O_RDONLY)
    cleanup.callback(os.close, fd)
    released: list[int] = []

    def serve(request: ClientRequest, body: memoryview) -> None:
        position, size = struct.unpack(">qq", body)
        parts = (b"head", FileRange(fd, position, size, released), memoryview(b"tail"))
        request.connection.answer(request, (struct.pack(">i", 8 + size), *parts))

    server = start(cleanup, FrameServer(serve))
    reader, writer = await server.connect()
    cleanup.callback(writer.close)
    ranges = [(0, 10), (5, 4_000_000), (100, 0), (1_000_000, 8_000_000), (17, 1)]
    writer.write(b"".join(frame(struct.pack(">qq", *r)) for r in ranges))
    for position, size in ranges:
        reply = await asyncio.wait_for(read_frame(reader), 60)
        assert reply == b"head" + content[position : position + size] + b"tail"
    assert released == [position for position, _ in ranges]


async def test_slices_are_released_when_the_client_goes_away(cleanup: ExitStack, tmp_path: Path) -> None:
    fd = os.open(tmp_path / "segment", os.O_CREAT | os.O_RDWR)
    os.ftruncate(fd, 64_000_000)
    cleanup.callback(os.close, fd)
    released: list[int] = []
    parked: list[ClientRequest] = []

    def serve(request: ClientRequest, body: memoryview) -> None:
        if bytes(body) == b"later...":
            parked.append(request)
            return
        request.connection.answer(request, (b"x", FileRange(fd, 0, 64_000_000, released)))

    server = start(cleanup, FrameServer(serve))
    _, writer = await server.connect()
    for body in (b"now.....", b"now.....", b"later...", b"now....."):
        writer.write(frame(body))
    await until(lambda: len(parked) == 1)
    writer.transport.abort()
    await until(lambda: not server.connections)
    assert len(released) == 3
    parked[0].connection.answer(parked[0], (FileRange(fd, 1, 5, released),))
    assert len(released) == 4


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        bytes.fromhex("160301020001fc0303") + bytes(40),
        struct.pack(">i", 2_000_000_000) + bytes(100),
        struct.pack(">i", -1),
        struct.pack(">i", 0),
        struct.pack(">i", 7) + bytes(7),
    ],
)
async def test_garbage_closes_the_connection_and_takes_no_memory(cleanup: ExitStack, garbage: bytes) -> None:
    server = start(cleanup, FrameServer(echo))
    reader, writer = await server.connect()
    cleanup.callback(writer.close)
    writer.write(garbage)
    alert = bytes.fromhex("15030100020228") if garbage[:2] == b"\x16\x03" else b""
    try:
        assert await asyncio.wait_for(reader.read(), 60) == alert
    except ConnectionResetError:
        pass
    assert not server.connections
    assert server.pool.lent_bytes == 0
    assert server.pool.kept_bytes <= SMALLEST_BYTES


async def test_a_claim_alone_commits_little_memory(cleanup: ExitStack) -> None:
    server = start(cleanup, FrameServer(echo, budget_bytes=4 * 1024 * 1024 * 1024))
    before = _resident_bytes()
    for _ in range(20):
        _, writer = await server.connect()
        cleanup.callback(writer.close)
        writer.write(struct.pack(">i", 100_000_000) + bytes(20_000))
    await until(lambda: server.budget.held_bytes > 20 * 100_000_000)
    assert _resident_bytes() - before <= 20 * 256 * 1024


async def test_a_claim_without_data_claims_nothing(cleanup: ExitStack) -> None:
    server = start(cleanup, FrameServer(echo))
    for _ in range(20):
        _, writer = await server.connect()
        cleanup.callback(writer.close)
        writer.write(struct.pack(">i", 100_000_000) + bytes(10_000))
    await until(lambda: server.pool.lent_bytes == 20 * SMALLEST_BYTES)
    assert server.budget.held_bytes == 0


async def test_frames_beyond_the_budget_wait_for_it(cleanup: ExitStack) -> None:
    server = start(cleanup, FrameServer(echo, budget_bytes=3 * 1024 * 1024))
    body = random.Random(2).randbytes(900_000)
    clients = [await server.connect() for _ in range(8)]
    peak = 0

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal peak
        cleanup.callback(writer.close)
        for _ in range(5):
            writer.write(frame(body))
            assert await read_frame(reader) == body
            peak = max(peak, server.pool.lent_bytes)

    await asyncio.wait_for(asyncio.gather(*(one(*client) for client in clients)), 60)
    assert peak <= 3 * 1024 * 1024 + 8 * SMALLEST_BYTES
    assert server.pool.lent_bytes == 0


async def test_a_client_that_never_reads_costs_bounded_memory(cleanup: ExitStack) -> None:
    handled = 0

    def serve(request: ClientRequest, body: memoryview) -> None:
        nonlocal handled
        handled += 1
        request.connection.answer(request, (bytes(100_000),))

    server = start(cleanup, FrameServer(serve, limits=ConnectionLimits(queued_bytes_max=1_000_000)))
    sock = socket.create_connection(("127.0.0.1", server.listener.port))
    cleanup.callback(sock.close)
    sock.setblocking(False)
    request = unsent = memoryview(frame(bytes(1000)))
    stuck_since = server.loop.time()
    while server.loop.time() - stuck_since < 0.3:
        try:
            unsent = unsent[sock.send(unsent) :] or request
            stuck_since = server.loop.time()
        except BlockingIOError:
            pass
        await asyncio.sleep(0)
    (connection,) = server.connections
    assert connection.is_blocked_on_peer
    assert connection.held_bytes <= 1_000_000 + 100_000 + 2 * SMALLEST_BYTES
    before = handled
    received = 0
    while handled == before:
        try:
            received += len(sock.recv(1 << 20))
        except BlockingIOError:
            await asyncio.sleep(0.001)
    assert received > 0


async def test_unanswered_requests_stop_the_reading_until_they_are_answered(cleanup: ExitStack) -> None:
    held: list[ClientRequest] = []
    limits = ConnectionLimits(unanswered_requests_max=10)
    server = start(cleanup, FrameServer(lambda request, body: held.append(request), limits=limits))
    reader, writer = await server.connect()
    cleanup.callback(writer.close)
    for i in range(100):
        writer.write(frame(struct.pack(">q", i)))
    await until(lambda: len(held) == 10)
    await asyncio.sleep(0.02)
    assert len(held) == 10
    for i in range(100):
        await until(lambda i=i: len(held) > i)  # type: ignore[misc]
        held[i].connection.answer(held[i], (frame(struct.pack(">q", i)),))
        assert await asyncio.wait_for(read_frame(reader), 60) == struct.pack(">q", i)


async def test_a_half_closed_client_gets_its_replies(cleanup: ExitStack) -> None:
    held: list[ClientRequest] = []
    server = start(cleanup, FrameServer(lambda request, body: held.append(request)))
    reader, writer = await server.connect()
    cleanup.callback(writer.close)
    for _ in range(3):
        writer.write(frame(bytes(8)))
    writer.write_eof()
    await until(lambda: len(held) == 3 and all(c.half_closed for c in server.connections))
    for request in held:
        request.connection.answer(request, (frame(b"answered"),))
    assert await asyncio.wait_for(reader.read(), 60) == frame(b"answered") * 3
    assert not server.connections


async def test_closing_instead_of_a_reply_lets_earlier_replies_out(cleanup: ExitStack) -> None:
    held: list[ClientRequest] = []
    server = start(cleanup, FrameServer(lambda request, body: held.append(request)))
    reader, writer = await server.connect()
    cleanup.callback(writer.close)
    for _ in range(3):
        writer.write(frame(bytes(8)))
    await until(lambda: len(held) == 3)
    closed: list[str] = []
    held[0].connection.call_on_close(lambda: closed.append("closed"))
    held[1].close_connection()
    assert not closed
    held[0].connection.answer(held[0], (frame(b"answered"),))
    assert await asyncio.wait_for(reader.read(), 60) == frame(b"answered")
    assert closed == ["closed"]


async def test_a_busy_connection_does_not_starve_another(cleanup: ExitStack) -> None:
    """While one client keeps megabytes of tiny requests in flight, the other's round trips stay short."""
    server = start(cleanup, FrameServer(echo))
    flood_reader, flood_writer = await server.connect()
    cleanup.callback(flood_writer.close)
    reader, writer = await server.connect()
    cleanup.callback(writer.close)
    stop = False
    flooded = 0
    many = frame(bytes(8)) * 5000

    async def flood() -> None:
        while not stop:
            flood_writer.write(many)
            await flood_writer.drain()

    async def drain() -> None:
        nonlocal flooded
        while data := await flood_reader.read(1 << 16):
            flooded += len(data)

    tasks = [asyncio.create_task(flood()), asyncio.create_task(drain())]
    await until(lambda: flooded > 100_000)
    shares: list[int] = []
    for _ in range(30):
        before = flooded
        writer.write(frame(b"prompt!!"))
        assert await asyncio.wait_for(read_frame(reader), 60) == b"prompt!!"
        shares.append((flooded - before) // 12)
    stop = True
    for task in tasks:
        task.cancel()
    # Bounded turns: a round trip waits for a few turns of the other, not for all that it has sent.
    assert sorted(shares)[len(shares) // 2] < 2000


async def test_two_thousand_idle_connections_are_cheap(cleanup: ExitStack) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 5000:
        pytest.skip("the process may not open so many sockets")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 5000), hard))
    server = start(cleanup, FrameServer(echo))
    clients: list[socket.socket] = []
    before = _resident_bytes()
    for i in range(2000):
        client = socket.create_connection(("127.0.0.1", server.listener.port))
        cleanup.callback(client.close)
        client.sendall(frame(bytes(1000)))
        clients.append(client)
        if i % 50 == 0:
            await asyncio.sleep(0)
    await until(lambda: len(server.connections) == 2000)
    for client in clients:
        client.setblocking(False)
        await until(lambda client=client: _readable(client))  # type: ignore[misc]
    assert server.pool.lent_bytes == 0
    assert _resident_bytes() - before < 2000 * 12_000


def _readable(client: socket.socket) -> bool:
    try:
        return len(client.recv(2000)) > 0
    except BlockingIOError:
        return False


def _resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()

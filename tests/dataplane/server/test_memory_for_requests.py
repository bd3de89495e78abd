"""Clients that claim the memory for requests keep it from others for seconds at most, however they behave then."""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import ExitStack

import pytest

from ottla.dataplane.server import ClientRequest, HandlerTable, Server, ServerConfig, handles
from ottla.protocol.messages.groups import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from ottla.protocol.messages.headers import encode_request

from .conftest import read_frame, until

MB = 1024 * 1024
BUDGET_BYTES = 16 * MB


class Handlers:
    """A handler that answers with the size of the request."""

    @handles(SyncGroupRequest, 0, 5)
    def sync(self, request: ClientRequest, message: SyncGroupRequest) -> SyncGroupResponse:
        return SyncGroupResponse(assignment=struct.pack(">i", len(message.assignments[0].assignment)))


@pytest.fixture
async def server(cleanup: ExitStack) -> Server:
    server = Server(HandlerTable(Handlers()), ServerConfig(receive_budget_bytes=BUDGET_BYTES))
    server.listen("CLIENTS", "127.0.0.1", 0)
    server.start()
    cleanup.callback(server.close)
    return server


def request_of(size: int) -> bytes:
    assignments = [SyncGroupRequestAssignment(member_id="m", assignment=bytes(size))]
    return encode_request(SyncGroupRequest(assignments=assignments), 0, 1, None)


async def connect(server: Server) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", server.listeners[0].port)


async def answered(server: Server, size: int) -> bool:
    """Send one request of `size`, and return whether it is answered."""
    reader, writer = await connect(server)
    try:
        writer.write(request_of(size))
        return struct.pack(">i", size) in await read_frame(reader)
    finally:
        writer.close()


async def use_up_the_budget(server: Server, cleanup: ExitStack, count: int) -> list[socket.socket]:
    """Start clients that each claim 12 MB and send until the server takes no more."""
    hogs = []
    for _ in range(count):
        sock = socket.create_connection(("127.0.0.1", server.listeners[0].port))
        cleanup.callback(sock.close)
        sock.setblocking(False)
        sock.send(struct.pack(">i", 12 * MB))
        hogs.append(sock)
    left = dict.fromkeys(hogs, 11 * MB)
    idle_rounds = 0
    while idle_rounds < 50:
        idle_rounds += 1
        for sock, rest in left.items():
            try:
                left[sock] -= sock.send(bytes(min(65536, rest)))
                idle_rounds = idle_rounds if left[sock] == rest else 0
            except BlockingIOError:
                pass
        await asyncio.sleep(0.001)
    return hogs


async def test_many_large_requests_at_once_are_all_answered(server: Server) -> None:
    """The requests exceed the memory, and are followed by some of usual size."""
    large = [answered(server, 5 * MB) for _ in range(20)]
    assert all(await asyncio.wait_for(asyncio.gather(*large), 60))
    assert all(await asyncio.wait_for(asyncio.gather(*(answered(server, 900_000) for _ in range(20))), 60))
    assert (server.budget.held_bytes, server.budget.waiting) == (0, 0)


async def test_clients_that_close_give_their_memory_back(server: Server, cleanup: ExitStack) -> None:
    hogs = await use_up_the_budget(server, cleanup, 40)
    assert await asyncio.wait_for(answered(server, 900_000), 20), "requests of usual size pass meanwhile"
    for sock in hogs:
        sock.close()
    await until(lambda: not server.connections, 5)
    assert (server.budget.held_bytes, server.budget.waiting, server.pool.lent_bytes) == (0, 0, 0)
    assert await asyncio.wait_for(answered(server, 5 * MB), 20)


async def test_clients_that_stall_give_way(server: Server, cleanup: ExitStack) -> None:
    """Requests of usual size pass at once, and large ones within a few times the patience."""
    await use_up_the_budget(server, cleanup, 40)
    assert await asyncio.wait_for(answered(server, 900_000), 20)
    assert await asyncio.wait_for(answered(server, 5 * MB), 20)


async def test_a_slow_client_gets_its_answer_while_others_wait(server: Server, cleanup: ExitStack) -> None:
    reader, writer = await connect(server)
    request = memoryview(request_of(6 * MB))
    writer.write(request[:100_000])
    await until(lambda: server.budget.held_bytes > 6 * MB)
    others = asyncio.gather(*(answered(server, 6 * MB + 1) for _ in range(4)))
    for position in range(100_000, len(request), 100_000):
        writer.write(request[position : position + 100_000])
        await asyncio.sleep(0.08)
    assert struct.pack(">i", 6 * MB) in await asyncio.wait_for(read_frame(reader), 60)
    writer.close()
    assert all(await asyncio.wait_for(others, 60))


async def test_a_client_that_closes_its_side_while_it_waits_still_gets_its_answer(server: Server) -> None:
    """The rest of its request is in the socket already."""
    _, holder = await connect(server)
    holder.write(struct.pack(">i", 12 * MB) + bytes(100_000))
    await until(lambda: server.budget.held_bytes > 0)
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * MB)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", server.listeners[0].port))
        size = 2 * MB + 50_000
        sending = asyncio.create_task(asyncio.get_running_loop().sock_sendall(sock, request_of(size)))
        await until(lambda: server.budget.waiting == 1)
        await sending
        sock.shutdown(socket.SHUT_WR)
        await asyncio.sleep(1.2)  # one sweep of the server at least
        holder.close()
        reader, writer = await asyncio.open_connection(sock=sock)
        assert struct.pack(">i", size) in await asyncio.wait_for(read_frame(reader), 60)
        writer.close()

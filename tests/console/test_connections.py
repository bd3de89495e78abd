"""Unauthenticated connections to the console, over real sockets: silent, slow or numerous ones keep no user out."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from ottla.console import connections
from ottla.console.addresses import network_of
from ottla.console.bounds import CONNECTIONS_MAX, CONNECTIONS_OF_NETWORK_MAX
from ottla.console.serving import console_config

PATIENCE_S = 60.0
HEAD = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
LARGE = 64 * 2**20
"""Number of bytes above the sockets' buffers."""
Address = tuple[str, int]
Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class App:
    """An application that answers at once, with much data at /large, and at /slow when a test permits it."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.slow = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/slow":
            self.slow += 1
            await self.go_on.wait()
        body = bytes(LARGE) if scope["path"] == "/large" else b"here"
        headers = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


@pytest.fixture
async def app() -> App:
    return App()


@pytest.fixture
async def server(app: App) -> AsyncIterator[uvicorn.Server]:
    """Run the console's server with an application of the test, at `server.address`."""
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as bound:
        found = uvicorn.Server(console_config(app))
        found.address = bound.getsockname()  # type: ignore[attr-defined]
        serving = asyncio.create_task(found.serve(sockets=[bound]))
        async with asyncio.timeout(PATIENCE_S):
            while not found.started:
                await asyncio.sleep(0.01)
            yield found
            app.go_on.set()
            found.should_exit = True
            await serving


@pytest.fixture
def address(server: uvicorn.Server) -> Address:
    return server.address  # type: ignore[attr-defined, no-any-return]


async def opened(stack: AsyncExitStack, address: Address, host: str = "127.0.0.1") -> Pair:
    """Connect from an address of this machine, until the test ends."""
    reader, writer = await asyncio.open_connection(*address, local_addr=(host, 0), limit=1024)
    stack.callback(writer.close)
    return reader, writer


async def status_of(pair: Pair, head: bytes = HEAD) -> bytes:
    """Send a request, and return the status of the answer; empty if the connection was dropped."""
    reader, writer = pair
    writer.write(head)
    try:
        return (await reader.readline()).partition(b" ")[2][:3]
    except ConnectionResetError:
        return b""


async def is_dropped(pair: Pair) -> bool:
    """Return once the connection has ended."""
    try:
        return await pair[0].read() == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("hosts", [1, 5])
async def test_silent_connections_keep_nobody_out(
    server: uvicorn.Server, address: Address, hosts: int
) -> None:
    async with AsyncExitStack() as stack:
        silent = [
            await opened(stack, address, f"127.0.0.{2 + i % hosts}") for i in range(CONNECTIONS_MAX + 20)
        ]
        for _ in range(3):
            assert await status_of(await opened(stack, address)) == b"200"
        assert await is_dropped(silent[0])
        held = len(server.server_state.connections)
        assert held <= (CONNECTIONS_MAX if hosts > 2 else CONNECTIONS_OF_NETWORK_MAX + 3)


async def test_a_network_does_not_take_the_place_of_others(server: uvicorn.Server, address: Address) -> None:
    async with AsyncExitStack() as stack:
        first = await opened(stack, address)
        assert await status_of(first) == b"200"
        for host in ("127.0.0.2", "127.0.0.3"):
            for _ in range(CONNECTIONS_OF_NETWORK_MAX + 10):
                await opened(stack, address, host)
        await first[0].readuntil(b"here")
        assert await status_of(first) == b"200", "it waited for longest, and stays"


async def test_too_many_that_are_under_way_are_told(app: App, address: Address) -> None:
    slow = HEAD.replace(b"/ ", b"/slow ", 1)
    async with AsyncExitStack() as stack:
        for _ in range(CONNECTIONS_OF_NETWORK_MAX):
            (await opened(stack, address))[1].write(slow)
        while app.slow < CONNECTIONS_OF_NETWORK_MAX:
            await asyncio.sleep(0.01)
        assert await status_of(await opened(stack, address)) == b"503"
        assert await status_of(await opened(stack, address, "127.0.0.2")) == b"200"
        app.go_on.set()
        assert await status_of(await opened(stack, address)) in (b"200", b"503")


@pytest.mark.parametrize("sent", [b"", b"GET / HTT", HEAD[:-2], HEAD + b"GET /"])
async def test_a_head_has_so_long_to_arrive(
    monkeypatch: pytest.MonkeyPatch, address: Address, sent: bytes
) -> None:
    monkeypatch.setattr(connections, "HEAD_S", 0.2)
    async with AsyncExitStack() as stack:
        reader, writer = await opened(stack, address)
        writer.write(sent)
        answer = await reader.read(2**16) if sent.startswith(HEAD) else b""
        assert answer.endswith(b"here") == sent.startswith(HEAD)
        assert await is_dropped((reader, writer))


async def test_a_head_that_drips_is_dropped(monkeypatch: pytest.MonkeyPatch, address: Address) -> None:
    monkeypatch.setattr(connections, "HEAD_S", 0.3)
    async with AsyncExitStack() as stack:
        reader, writer = await opened(stack, address)
        dropped = asyncio.create_task(is_dropped((reader, writer)))
        while not dropped.done():
            writer.write(b"x")
            await asyncio.sleep(0.02)
        assert await dropped


async def test_a_request_that_takes_long_is_not_dropped(
    monkeypatch: pytest.MonkeyPatch, app: App, address: Address
) -> None:
    monkeypatch.setattr(connections, "HEAD_S", 0.1)
    async with AsyncExitStack() as stack:
        pair = await opened(stack, address)
        asked = asyncio.create_task(status_of(pair, HEAD.replace(b"/ ", b"/slow ", 1)))
        await asyncio.sleep(0.5)  # some times the bound
        app.go_on.set()
        assert await asked == b"200"


@pytest.mark.parametrize("requests", [1, 2])
async def test_who_does_not_read_is_dropped_and_who_reads_slowly_is_not(
    monkeypatch: pytest.MonkeyPatch, server: uvicorn.Server, address: Address, requests: int
) -> None:
    monkeypatch.setattr(connections, "HEAD_S", 0.1)
    monkeypatch.setattr(connections, "SEND_S", 4.0)
    asked = HEAD.replace(b"/ ", b"/large ", 1) * requests
    async with AsyncExitStack() as stack:
        slow_reader, slow_writer = await opened(stack, address)
        slow_writer.write(asked)
        _, writer = await opened(stack, address)
        writer.write(asked)
        received = len(await slow_reader.readuntil(b"\r\n\r\n"))
        while len(server.server_state.connections) > 1:
            received += len(await slow_reader.read(2**20))
            await asyncio.sleep(0.05)
        assert received < LARGE
        while received < LARGE:
            received += len(piece := await slow_reader.read(2**22))
            assert piece


def test_networks() -> None:
    assert network_of("10.0.0.7") == "10.0.0.7"
    assert network_of("::ffff:10.0.0.7") == "10.0.0.7"
    assert network_of("2001:db8:1:2:3::4") == network_of("2001:db8:1:2:ffff::") == "2001:db8:1:2::/64"
    assert network_of("2001:db8:1:3::4") != network_of("2001:db8:1:2::4")
    assert network_of("") == ""

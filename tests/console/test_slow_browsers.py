"""A browser that does not read, over real sockets: it is dropped, and no data accumulates for it."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import AsyncIterator, Mapping

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from ottla.console.live.feeds import Feeds
from ottla.console.live.streams import EventStream

PATIENCE_S = 60.0
FRAGMENT = "x" * 2**20


@pytest.fixture
async def feeds() -> AsyncIterator[Feeds]:
    found = Feeds()
    yield found
    found.end()


@pytest.fixture
async def address(feeds: Feeds) -> AsyncIterator[tuple[str, int]]:
    """Serve a stream that repeats a megabyte, and yield its address."""
    numbers, stopping = itertools.count(), asyncio.Event()

    async def produce() -> Mapping[str, str]:
        return {"live_a": f"{next(numbers)} {FRAGMENT}"}

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await EventStream(feeds.open("/a", produce, 0.05), stopping, send_s=1.0)(scope, receive, send)

    with socket.create_server(("127.0.0.1", 0)) as bound:
        config = uvicorn.Config(app, http="h11", ws="none", lifespan="off", log_config=None)
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve(sockets=[bound]))
        yield bound.getsockname()
        stopping.set()
        server.should_exit = True
        await serving


async def test_a_browser_that_does_not_read_is_dropped(feeds: Feeds, address: tuple[str, int]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        reader, writer = await asyncio.open_connection(*address, limit=1024)
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        while feeds.readers == 0:
            await asyncio.sleep(0.01)
        while feeds.readers:  # nothing is read meanwhile
            await asyncio.sleep(0.01)
        received = 0
        while piece := await reader.read(2**16):
            received += len(piece)
        # The amount in the buffers of both sides, and no more.
        assert received < 30 * len(FRAGMENT)
        writer.close()


async def test_one_that_reads_stays(feeds: Feeds, address: tuple[str, int]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        reader, writer = await asyncio.open_connection(*address, limit=4 * len(FRAGMENT))
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        for _ in range(20):
            await reader.readuntil(b"event: fragment")
        assert feeds.readers == 1
        writer.close()

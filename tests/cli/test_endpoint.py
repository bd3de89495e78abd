"""The HTTP endpoint among clients that mean no good."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable

import pytest

from ottla.cli.endpoint import CONNECTIONS_MAX, Endpoint
from ottla.protocol.exposition import Family, Kind, Metric

ANSWER = Metric("answer", Kind.GAUGE, "To everything.")


class Node:
    def families(self) -> Iterable[Family]:
        return [Family(ANSWER, [((), 42)])]

    def unready(self) -> str:
        return ""


@pytest.fixture
async def port() -> AsyncIterator[int]:
    endpoint = Endpoint("127.0.0.1", 0, [Node()])
    await endpoint.start()
    yield endpoint.port
    await endpoint.stop()


async def ask(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    async with asyncio.timeout(4):
        answer = await reader.read()
    writer.close()
    return answer


async def test_connections_that_say_nothing_keep_nobody_out(port: int) -> None:
    silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(10 * CONNECTIONS_MAX)]
    for _, writer in silent:
        writer.write(b"GET /metrics HTTP/1.1\r\nX: ")
    for _ in range(3):
        assert b"answer 42" in await ask(port, b"GET /metrics HTTP/1.1\r\n\r\n")
        assert b"200 OK" in await ask(port, b"GET /healthz HTTP/1.0\r\n\r\n")
    for _, writer in silent:
        writer.close()


async def test_one_request_of_a_connection_is_answered(port: int) -> None:
    answer = await ask(port, b"GET /healthz HTTP/1.1\r\n\r\n" * 5)
    assert answer.count(b"HTTP/1.1 200 OK") == 1

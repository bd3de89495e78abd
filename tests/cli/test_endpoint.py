"""The HTTP endpoint with malicious clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable

import pytest

from ottla.cli.build import this_build
from ottla.cli.nodes.endpoint import CONNECTIONS_MAX, MonitoringEndpoint, NodesHere
from ottla.protocol.exposition import Family, Metric, MetricKind

ANSWER = Metric("answer", MetricKind.GAUGE, "To everything.")


class Node:
    def families(self) -> Iterable[Family]:
        return [Family(ANSWER, [((), 42)])]

    def unready(self) -> str:
        return ""


@pytest.fixture
async def port() -> AsyncIterator[int]:
    endpoint = MonitoringEndpoint("127.0.0.1", 0, NodesHere([Node()]))
    await endpoint.start()
    yield endpoint.port
    await endpoint.stop()


async def ask(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    async with asyncio.timeout(25):
        answer = await reader.read()
    writer.close()
    return answer


async def test_connections_that_say_nothing_keep_nobody_out(port: int) -> None:
    silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(CONNECTIONS_MAX + 50)]
    for _, writer in silent:
        writer.write(b"GET /metrics HTTP/1.1\r\nX: ")
    for _ in range(3):
        assert b"answer 42" in await ask(port, b"GET /metrics HTTP/1.1\r\n\r\n")
        assert b"200 OK" in await ask(port, b"GET /healthz HTTP/1.0\r\n\r\n")
    for _, writer in silent:
        writer.close()


async def test_each_process_says_its_build(port: int) -> None:
    build = this_build()
    labels = f'version="{build.version}",python="{build.python}",codec="{build.codec}"'
    assert f"ottla_build_info{{{labels}}} 1\n" in (await ask(port, b"GET /metrics HTTP/1.1\r\n\r\n")).decode()


async def test_a_hundred_scrapes_at_once_are_all_answered(port: int) -> None:
    asking = (ask(port, b"GET /metrics HTTP/1.1\r\n\r\n") for _ in range(100))
    assert all(b"answer 42" in answer for answer in await asyncio.gather(*asking))


async def test_scrapes_that_wait_for_their_turn_do_not_hold_up_health(port: int) -> None:
    """A client that does not read its answer keeps its turn for a while; a supervisor is answered anyway."""
    asking = [asyncio.create_task(ask(port, b"GET /metrics HTTP/1.1\r\n\r\n")) for _ in range(100)]
    assert b"200 OK" in await ask(port, b"GET /healthz HTTP/1.1\r\n\r\n")
    await asyncio.gather(*asking)


async def test_one_request_of_a_connection_is_answered(port: int) -> None:
    answer = await ask(port, b"GET /healthz HTTP/1.1\r\n\r\n" * 5)
    assert answer.count(b"HTTP/1.1 200 OK") == 1

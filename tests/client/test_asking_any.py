"""Requests that any broker can answer: the client does not wait for a silent one, and sends changes once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from ottla.client.connections.cluster import HEDGE_AFTER_MS, Cluster
from ottla.client.connections.metadata import BrokerAddress
from ottla.client.failures import NoBrokerReachable, RequestTimedOut
from ottla.protocol.messages.headers import RequestHeader
from ottla.protocol.messages.metadata import MetadataRequest
from tests.client.test_connection import Serve, metadata_answer, peer


class Peers:
    """Brokers that count their requests, and answer while they are not paused."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.paused: set[int] = set()
        self.takes_s = 0.0
        self.addresses: list[str] = []

    @asynccontextmanager
    async def running(self, count: int) -> AsyncIterator[Peers]:
        async with AsyncExitStack() as stack:
            for number in range(count):
                address = await stack.enter_async_context(peer(self._serving(number)))
                self.addresses.append(f"{address.host}:{address.port}")
                self.asked.append(0)
            yield self

    def _serving(self, number: int) -> Serve:
        async def serve(writer: asyncio.StreamWriter, header: RequestHeader) -> None:
            self.asked[number] += 1
            if number not in self.paused:
                await asyncio.sleep(self.takes_s)
                writer.write(metadata_answer(header, str(number)))

        return serve


async def test_a_paused_broker_is_not_waited_for() -> None:
    async with Peers().running(2) as peers, Cluster(peers.addresses, request_timeout_ms=60_000) as cluster:
        silent = peers.asked.index(1)
        peers.paused = {silent}
        async with asyncio.timeout(20):
            while peers.asked[silent] < 3:
                assert (await cluster.ask_any(MetadataRequest())).cluster_id == str(1 - silent)
                connection = await cluster.any_connection()
                assert (await connection.request(MetadataRequest())).cluster_id == str(1 - silent)


async def test_a_broker_that_answers_is_asked_alone() -> None:
    async with Peers().running(3) as peers, Cluster(peers.addresses) as cluster:
        before = sum(peers.asked)
        for _ in range(20):
            await cluster.ask_any(MetadataRequest())
        assert sum(peers.asked) == before + 20


async def test_a_broker_is_not_asked_twice_at_once_under_two_names() -> None:
    """The broker has no name yet as a bootstrap server, and has one in its own metadata."""
    async with Peers().running(1) as peers, Cluster(peers.addresses) as cluster:
        host, _, port = peers.addresses[0].rpartition(":")
        cluster.metadata.learn_broker(BrokerAddress(1, host, int(port)))
        before, peers.takes_s = peers.asked[0], 3 * HEDGE_AFTER_MS / 1000
        await cluster.ask_any(MetadataRequest())
        assert peers.asked[0] == before + 1


async def test_when_all_are_silent_the_timeout_is_told() -> None:
    async with Peers().running(2) as peers, Cluster(peers.addresses, connect_timeout_ms=500) as cluster:
        peers.paused = {0, 1}
        with pytest.raises(RequestTimedOut, match="did not answer Metadata"):
            await cluster.ask_any(MetadataRequest(), timeout_ms=400)


async def test_who_asks_over_a_connection_waits_as_long_as_the_client_was_told_to() -> None:
    """The timeout is not the default of 30 s.

    Seeds 5641 and 9109 of the simulation: group members, and a client that deleted a topic, waited half a minute for a
    broker that had lost its power.
    """
    async with Peers().running(1) as peers, Cluster(peers.addresses, request_timeout_ms=300) as cluster:
        connection = await cluster.any_connection()
        peers.paused = {0}
        async with asyncio.timeout(20):
            with pytest.raises(RequestTimedOut, match="did not answer Metadata"):
                await connection.request(MetadataRequest())


async def test_when_nobody_listens_the_addresses_are_told() -> None:
    async with Peers().running(2) as peers:
        addresses = peers.addresses
    with pytest.raises(NoBrokerReachable, match=addresses[1]):
        await Cluster(addresses).start()


async def test_a_broker_that_falls_silent_while_a_connection_is_made_is_given_up_like_any_other() -> None:
    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    async with asyncio.timeout(25):
        with pytest.raises(NoBrokerReachable):
            async with Cluster(f"{host}:{port}", request_timeout_ms=100):
                pass
    server.close()

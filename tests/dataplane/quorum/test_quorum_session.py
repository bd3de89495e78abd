"""Broker sessions against real quorum nodes: feed, liveness, fencing, commands across leader changes."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any

import pytest
import uvloop
from ottla.dataplane.quorum import SessionLost
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.quorum_commands import AllocateProducerIds

from .cluster import Cluster, until


def run(scenario: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(20):
            await scenario

    uvloop.run(bounded())


async def allocate(session: Any) -> int:
    result = await session.submit(
        AllocateProducerIds(broker_id=session._config.broker_id, broker_epoch=session.broker_epoch), 30_000
    )
    first: int = result.first
    return first


def test_a_broker_registers_and_is_unfenced(tmp_path: Any) -> None:
    async def scenario() -> None:
        async with Cluster(tmp_path) as cluster:
            session = await cluster.broker(1, ready=False)
            await session.registered()
            assert session.fenced
            assert session.broker_epoch > 0
            session.ask_to_unfence()
            async with asyncio.timeout(2):
                await session.unfenced()
            assert not session.fenced
            assert session.image.cluster_id == "test-cluster"

    run(scenario())


def test_brokers_may_start_before_the_quorum_and_nodes_in_any_order(tmp_path: Any) -> None:
    async def scenario() -> None:
        cluster = Cluster(tmp_path, nodes=3)
        try:
            session = await cluster.broker(1)
            for node_id in (103, 101, 102):
                await cluster.start_node(node_id)
            async with asyncio.timeout(20):
                await session.unfenced()
        finally:
            await cluster.__aexit__()

    run(scenario())


def test_a_reply_comes_when_the_image_has_the_effects(tmp_path: Any) -> None:
    async def scenario() -> None:
        async with Cluster(tmp_path) as cluster:
            session = await cluster.broker(1)
            await session.registered()
            for _ in range(20):
                first = await allocate(session)
                assert session.image.next_producer_id > first

    run(scenario())

"""A coordinator that falls silent while another one has taken over."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ottla.client.connections.cluster import Cluster
from ottla.client.connections.coordinator import OF_TRANSACTION, Coordinator
from ottla.client.failures import ConnectionLost
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.messages.groups import HeartbeatRequest


class Line:
    """A connection to broker 1, which never answers coordinator requests."""

    def __init__(self, cluster: Moving) -> None:
        self.features: dict[str, int] = {}
        self._cluster = cluster
        self._lost = asyncio.Event()

    def version_for(self, _request: object, at_most: int | None = None) -> int:
        return 0 if at_most is None else at_most

    async def request(self, message: Any, **_: Any) -> Any:
        if isinstance(message, FindCoordinatorRequest):
            named = self._cluster.coordinator
            return FindCoordinatorResponse(node_id=named, host="localhost", port=named)
        self._cluster.asked.set()
        await self._lost.wait()
        raise ConnectionLost("the connection to broker 1 was closed")

    def close(self) -> None:
        self._lost.set()


class Moving(Cluster):
    def __init__(self) -> None:
        super().__init__("localhost:1")
        self.coordinator = 1
        self.asked = asyncio.Event()
        self.line = Line(self)

    async def any_connection(self) -> Any:
        return self.line

    async def connection(self, broker_id: int, lane: str = "") -> Any:
        return self.line


async def test_a_silent_coordinator_that_metadata_lack_by_now_is_left_when_it_was_replaced() -> None:
    """The coordinator's connection was searched for by the address in the metadata.

    Kafka's brokers omit a fenced broker, so a committing client waited for the request timeout, 30 s.
    """
    cluster = Moving()
    coordinator = Coordinator(cluster, "x", OF_TRANSACTION, "")
    asking = asyncio.ensure_future(coordinator.ask(HeartbeatRequest()))
    async with asyncio.timeout(25):
        await cluster.asked.wait()
        await coordinator.leave_if_replaced()
        assert not asking.done()
        cluster.coordinator = 2
        del cluster.metadata.brokers[1]
        await coordinator.leave_if_replaced()
        with pytest.raises(ConnectionLost):
            await asking
    assert coordinator.broker_id is None


async def test_it_is_left_also_where_another_question_to_it_has_ended() -> None:
    cluster = Moving()
    coordinator = Coordinator(cluster, "x", OF_TRANSACTION, "")
    asking, given_up = (asyncio.ensure_future(coordinator.ask(HeartbeatRequest())) for _ in range(2))
    async with asyncio.timeout(25):
        await cluster.asked.wait()
        given_up.cancel()
        await asyncio.wait([given_up])
        cluster.coordinator = 2
        await coordinator.leave_if_replaced()
        with pytest.raises(ConnectionLost):
            await asking

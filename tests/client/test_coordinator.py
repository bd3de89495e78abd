"""Looking up who coordinates a group."""

from __future__ import annotations

from typing import Any

from ottla.client.connections.cluster import Cluster
from ottla.client.connections.coordinator import OF_GROUP, Coordinator
from ottla.protocol.messages.find_coordinator import FindCoordinatorResponse


class Patient:
    """A connection that notes how long it is to wait for an answer."""

    def __init__(self) -> None:
        self.timeouts_ms: list[float | None] = []
        self.features: dict[str, int] = {}

    def version_for(self, _request: object, at_most: int) -> int:
        return at_most

    async def request(self, _message: object, *, timeout_ms: float | None = None, **_: Any) -> object:
        self.timeouts_ms.append(timeout_ms)
        return FindCoordinatorResponse(node_id=1, host="localhost", port=1)


class LookingUp(Cluster):
    def __init__(self, connection: Patient) -> None:
        super().__init__("localhost:1", request_timeout_ms=1_234)
        self._only = connection

    async def any_connection(self) -> Any:
        return self._only

    async def connection(self, broker_id: int, lane: str = "") -> Any:
        return self._only


async def test_a_broker_that_is_silent_is_waited_for_no_longer_than_the_request_timeout() -> None:
    """Seed 5641 of the simulation: members of a group met half a minute after the faults were over."""
    connection = Patient()
    await Coordinator(LookingUp(connection), "g", OF_GROUP, "group").connection()
    assert connection.timeouts_ms == [1_234]

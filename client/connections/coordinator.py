"""The coordinator of a group or a transactional id: a broker that is looked up, asked, and looked up again after a
move.
"""

from __future__ import annotations

from typing import Final, TypeVar

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.find_coordinator import FindCoordinatorRequest
from ...protocol.wire.schema import Message, Request
from ..failures import ConnectionLost, RequestTimedOut, cluster_error
from .cluster import Cluster
from .connection import Connection
from .metadata import BrokerAddress

OF_GROUP: Final = 0
OF_TRANSACTION: Final = 1
COORDINATOR_MOVED: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
"""Errors after which the coordinator must be looked up again."""
_ONE_KEY: Final = 3
"""The last version of FindCoordinator with a single key."""

ResponseT = TypeVar("ResponseT", bound=Message)


class Coordinator:
    """The coordinator of one group or transactional id, `key`. Its requests use a dedicated connection (`lane`) and are
    answered in order."""

    def __init__(self, cluster: Cluster, key: str, key_type: int, lane: str) -> None:
        self.key = key
        self.broker_id: int | None = None
        """The broker found by the last lookup; None before the next one."""
        self.features: dict[str, int] = {}
        """The active features, as of the last connection to the coordinator."""
        self._cluster = cluster
        self._key_type = key_type
        self._lane = lane
        self._asked: Connection | None = None
        """The connection of the last request, on which pending answers would arrive."""

    @property
    def user(self) -> str | None:
        """The user of the client's login; None if the client does not know it."""
        return self._cluster.user

    def forget(self) -> None:
        """Forget which broker is the coordinator, so that the next request looks the broker up again."""
        self.broker_id = None

    async def connection(self) -> Connection:
        """Return the connection to the coordinator. Raises KafkaError."""
        if self.broker_id is None:
            self.broker_id = await self._find()
        try:
            connection = await self._cluster.connection(self.broker_id, self._lane)
        except (ConnectionLost, RequestTimedOut):
            self.forget()
            raise
        self.features = connection.features
        return connection

    async def ask(
        self, message: Request[ResponseT], *, at_most: int | None = None, timeout_ms: float | None = None
    ) -> ResponseT:
        """Send a request once, in version `at_most` or below, and return the answer.

        Raises KafkaError for failures of the transport, not for error codes in the answer.
        """
        connection = await self.connection()
        version = connection.version_for(type(message), at_most)
        self._asked = connection
        try:
            return await connection.request(message, version=version, timeout_ms=timeout_ms)
        except (ConnectionLost, RequestTimedOut):
            self.forget()
            raise

    async def leave_if_replaced(self) -> None:
        """Close the connection to a silent coordinator if the cluster names another broker by now.

        Pending requests then fail with ConnectionLost, and their callers ask the new coordinator.
        """
        silent = self.broker_id
        if silent is None:
            return
        try:
            named = await self._find()
        except KafkaError:
            return
        # The silent broker may be missing from the metadata, so its connection cannot be looked up there.
        if named != silent and self._asked is not None:
            self._asked.close()

    async def _find(self) -> int:
        connection = await self._cluster.any_connection()
        version = connection.version_for(FindCoordinatorRequest, at_most=_ONE_KEY)
        request = FindCoordinatorRequest(key=self.key, key_type=self._key_type)
        response = await connection.request(request, version=version)
        if response.error_code:
            error = ErrorCode.of(response.error_code)
            whose = "group" if self._key_type == OF_GROUP else "transactional id"
            raise cluster_error(
                error,
                f"{whose} {self.key!r}, coordinator lookup",
                response.error_message,
                operation="DESCRIBE",
                name=self.key,
                user=self.user,
            )
        self._cluster.metadata.learn_broker(BrokerAddress(response.node_id, response.host, response.port))
        return response.node_id

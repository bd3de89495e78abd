"""The broker that answers for a group or a transactional id: looked up when it is not known, asked, and looked up again
when it has moved.
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
"""Answers that say: look it up again."""
_ONE_KEY: Final = 3
"""The last version that asks for a single key."""

ResponseT = TypeVar("ResponseT", bound=Message)


class Coordinator:
    """Of one key. Its requests have a connection of their own (`lane`) and are answered in order."""

    def __init__(self, cluster: Cluster, key: str, key_type: int, lane: str) -> None:
        self.key = key
        self.broker_id: int | None = None
        """As last looked up."""
        self.features: dict[str, int] = {}
        """The features in force when a connection to it was last made."""
        self._cluster = cluster
        self._key_type = key_type
        self._lane = lane
        self._asked: Connection | None = None
        """The last one that something was asked on: if answers are awaited, then there."""

    @property
    def user(self) -> str | None:
        """As whom the client logs in, where it knows that itself."""
        return self._cluster.user

    def forget(self) -> None:
        """It has moved: look it up before the next question."""
        self.broker_id = None

    async def connection(self) -> Connection:
        """The connection to it. Raises KafkaError."""
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
        """Ask once, in version `at_most` or below. Raises KafkaError for what comes between, not for what the answer
        says."""
        connection = await self.connection()
        version = connection.version_for(type(message), at_most)
        self._asked = connection
        try:
            return await connection.request(message, version=version, timeout_ms=timeout_ms)
        except (ConnectionLost, RequestTimedOut):
            self.forget()
            raise

    async def leave_if_replaced(self) -> None:
        """It is silent. If the cluster names another one by now, give up the connection: who waits there is told
        ConnectionLost, and asks the other one."""
        silent = self.broker_id
        if silent is None:
            return
        try:
            named = await self._find()
        except KafkaError:
            return
        # Metadata may lack the silent one by now, so it is of no use to look the connection up there.
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

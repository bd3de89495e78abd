"""FindCoordinator (0-6): the leader of the `__consumer_offsets` partition that a group hashes to."""

from __future__ import annotations

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ...groups.coordinator import partition_for
from ..handler import Request, handles
from ..turns import in_turns
from .cluster_access import OFFSETS_TOPIC, Endpoint, Quorum, endpoint
from .topic_creation import TopicCreator

_GROUP, _TRANSACTION = 0, 1


def _error(message: FindCoordinatorRequest, error: KafkaError) -> FindCoordinatorResponse:
    if message.coordinator_keys:
        return FindCoordinatorResponse(
            coordinators=[_unknown(key, error) for key in message.coordinator_keys]
        )
    return FindCoordinatorResponse(error_code=error.code, error_message=error.message, node_id=-1, port=-1)


def _unknown(key: str, error: KafkaError) -> Coordinator:
    return Coordinator(key=key, node_id=-1, port=-1, error_code=error.code, error_message=error.message)


class CoordinatorHandlers:
    """Names coordinators; the first question of all creates the offsets topic."""

    def __init__(self, quorum: Quorum, creator: TopicCreator) -> None:
        self._quorum = quorum
        self._creator = creator

    @handles(FindCoordinatorRequest, 0, 6, on_error=_error)
    async def find_coordinator(
        self, request: Request, message: FindCoordinatorRequest
    ) -> FindCoordinatorResponse:
        """One key up to version 3, many from version 4 on."""
        if message.key_type == _TRANSACTION:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "transactions are not supported")
        if message.key_type != _GROUP:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"key type {message.key_type}: allowed is 0, a group")
        if OFFSETS_TOPIC not in self._quorum.image.topics:
            await self._creator.create([OFFSETS_TOPIC])
        if request.api_version >= 4:
            return FindCoordinatorResponse(
                coordinators=[
                    self._coordinator(key, request.listener)
                    async for key in in_turns(message.coordinator_keys)
                ]
            )
        found = self._find(message.key, request.listener)
        if found is None:
            return _error(message, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        return FindCoordinatorResponse(node_id=found.broker_id, host=found.host, port=found.port)

    def _coordinator(self, group: str, listener: str) -> Coordinator:
        found = self._find(group, listener)
        if found is None:
            return _unknown(group, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        return Coordinator(key=group, node_id=found.broker_id, host=found.host, port=found.port)

    def _find(self, group: str, listener: str) -> Endpoint | None:
        image = self._quorum.image
        topic = image.topics.get(OFFSETS_TOPIC)
        if topic is None or not topic.partitions:
            return None
        partition = topic.partitions[partition_for(group, len(topic.partitions))]
        leader = image.brokers.get(partition.leader)
        return endpoint(leader, listener) if leader is not None else None

"""FindCoordinator (0-6): the broker that handles the requests for a group or a transactional id.

For a group it is the leader of the `__consumer_offsets` partition that the group's id hashes to. For a transactional id
it is a broker that passes its requests on to the quorum.
"""

from __future__ import annotations

from ...protocol.cluster.acls import AclOperation, AclResourceType
from ...protocol.cluster.cluster_image import BrokerState
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.find_coordinator import (
    GROUP_KEY,
    TRANSACTION_KEY,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ..cluster.endpoints import Endpoint, endpoint
from ..cluster.internal_topics import OFFSETS_TOPIC
from ..cluster.topic_creation import TopicCreator
from ..coordinated_log.key_hash import partition_for
from ..quorum.access import Quorum
from ..runtime.time_slices import in_time_slices
from ..security.authorization.access import Access
from ..security.authorization.needs import handler_asks
from ..server.error_answers import ErrorAnswers
from ..server.handler import ClientRequest, handles
from ..transactions.coordinator import coordinator_of

_RESOURCES = {GROUP_KEY: AclResourceType.GROUP, TRANSACTION_KEY: AclResourceType.TRANSACTIONAL_ID}
_FIRST_WITH_MANY = 4


def _unknown(key: str, error: KafkaError) -> Coordinator:
    return Coordinator(key=key, node_id=-1, port=-1, error_code=error.code, error_message=error.message)


def _may_find(access: Access, group: str) -> bool:
    return access.allows(AclOperation.DESCRIBE, AclResourceType.GROUP, group, quiet=True)


class FindCoordinatorHandlers:
    """The handler of FindCoordinator. The first request about a group creates the offsets topic."""

    def __init__(self, quorum: Quorum, creator: TopicCreator) -> None:
        self._quorum = quorum
        self._creator = creator

    @handles(
        FindCoordinatorRequest,
        0,
        6,
        errors=ErrorAnswers(arrays={"coordinator_keys": "coordinators"}, values={"node_id": -1, "port": -1}),
        needs=handler_asks("DESCRIBE Group or DESCRIBE TransactionalId"),
    )
    async def find_coordinator(
        self, request: ClientRequest, message: FindCoordinatorRequest
    ) -> FindCoordinatorResponse:
        """Name the coordinator of one key up to version 3, of many keys from version 4 on."""
        if message.key_type not in (GROUP_KEY, TRANSACTION_KEY):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"key type {message.key_type}: allowed are 0, a group, and 1, a transactional id",
            )
        access = request.access
        if request.api_version < _FIRST_WITH_MANY:
            access.check(AclOperation.DESCRIBE, _RESOURCES[message.key_type], message.key)
        if (
            message.key_type == GROUP_KEY
            and OFFSETS_TOPIC not in self._quorum.image.topics
            and any(_may_find(access, key) for key in message.coordinator_keys or [message.key])
        ):
            await self._creator.create([OFFSETS_TOPIC])
        if request.api_version >= _FIRST_WITH_MANY:
            return FindCoordinatorResponse(
                coordinators=[
                    self._coordinator(access, key, message.key_type, request.listener)
                    async for key in in_time_slices(message.coordinator_keys)
                ]
            )
        found = self._find(message.key, message.key_type, request.listener)
        if found is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return FindCoordinatorResponse(node_id=found.broker_id, host=found.host, port=found.port)

    def _coordinator(self, access: Access, key: str, key_type: int, listener: str) -> Coordinator:
        try:
            access.check(AclOperation.DESCRIBE, _RESOURCES[key_type], key)
        except KafkaError as error:
            return _unknown(key, error)
        found = self._find(key, key_type, listener)
        if found is None:
            return _unknown(key, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        return Coordinator(key=key, node_id=found.broker_id, host=found.host, port=found.port)

    def _find(self, key: str, key_type: int, listener: str) -> Endpoint | None:
        found = self._leader_of(key) if key_type == GROUP_KEY else self._speaker_for(key)
        return endpoint(found, listener) if found is not None else None

    def _leader_of(self, group: str) -> BrokerState | None:
        image = self._quorum.image
        topic = image.topics.get(OFFSETS_TOPIC)
        if topic is None or not topic.partitions:
            return None
        partition = topic.partitions[partition_for(group, len(topic.partitions))]
        return image.brokers.get(partition.leader)

    def _speaker_for(self, transactional_id: str) -> BrokerState | None:
        image = self._quorum.image
        return image.brokers.get(coordinator_of(transactional_id, image))

"""FindCoordinator (0-6): the broker that handles the requests for a group, a transactional id or a share-partition.

For a group it is the leader of the `__consumer_offsets` partition that the group's id hashes to. For a transactional id
it is a broker that passes its requests on to the quorum. For a share-partition it is the leader of a
`__share_group_state` partition. Only brokers may look up share-partitions, from version 6 on (KIP-932).
"""

from __future__ import annotations

from ...protocol.cluster.acls import AclOperation, AclResourceType
from ...protocol.cluster.cluster_image import BrokerState
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.find_coordinator import (
    GROUP_KEY,
    SHARE_KEY,
    TRANSACTION_KEY,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    SharePartition,
)
from ..cluster.endpoints import Endpoint, endpoint
from ..cluster.internal_topics import OFFSETS_TOPIC, SHARE_STATE_TOPIC
from ..cluster.topic_creation import TopicCreator
from ..coordinated_log.key_hash import leader_for
from ..quorum.access import Quorum
from ..runtime.time_slices import in_time_slices
from ..security.authorization.access import Access
from ..security.authorization.needs import handler_asks
from ..server.error_answers import ErrorAnswers
from ..server.handler import ClientRequest, check_is_broker, handles
from ..share.feature import check_share_level
from ..transactions.coordinator import coordinator_of

_RESOURCES = {GROUP_KEY: AclResourceType.GROUP, TRANSACTION_KEY: AclResourceType.TRANSACTIONAL_ID}
_FIRST_WITH_MANY = 4
_FIRST_WITH_SHARES = 6


def _unknown(key: str, error: KafkaError) -> Coordinator:
    return Coordinator(key=key, node_id=-1, port=-1, error_code=error.code, error_message=error.message)


def _known(key: str, found: Endpoint | None) -> Coordinator:
    if found is None:
        return _unknown(key, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    return Coordinator(key=key, node_id=found.broker_id, host=found.host, port=found.port)


def _may_find(access: Access, group: str) -> bool:
    return access.allows(AclOperation.DESCRIBE, AclResourceType.GROUP, group, quiet=True)


class FindCoordinatorHandlers:
    """The handler of FindCoordinator. The first request about a group, or about a share-partition, creates the internal
    topic."""

    def __init__(self, quorum: Quorum, creator: TopicCreator) -> None:
        self._quorum = quorum
        self._creator = creator

    @handles(
        FindCoordinatorRequest,
        0,
        6,
        errors=ErrorAnswers(arrays={"coordinator_keys": "coordinators"}, values={"node_id": -1, "port": -1}),
        needs=handler_asks(
            "DESCRIBE Group or DESCRIBE TransactionalId; share-partitions: a broker of the cluster"
        ),
    )
    async def find_coordinator(
        self, request: ClientRequest, message: FindCoordinatorRequest
    ) -> FindCoordinatorResponse:
        """Name the coordinator of one key up to version 3, of many keys from version 4 on."""
        if message.key_type == SHARE_KEY and request.api_version >= _FIRST_WITH_SHARES:
            return await self._share_coordinators(request, message)
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

    async def _share_coordinators(
        self, request: ClientRequest, message: FindCoordinatorRequest
    ) -> FindCoordinatorResponse:
        check_is_broker(request)
        check_share_level(self._quorum.image.features)
        if SHARE_STATE_TOPIC not in self._quorum.image.topics:
            await self._creator.create([SHARE_STATE_TOPIC])
        return FindCoordinatorResponse(
            coordinators=[
                self._share_coordinator(key, request.listener)
                async for key in in_time_slices(message.coordinator_keys)
            ]
        )

    def _share_coordinator(self, key: str, listener: str) -> Coordinator:
        try:
            SharePartition.of_key(key)
        except ValueError as error:
            return _unknown(key, KafkaError(ErrorCode.INVALID_REQUEST, str(error)))
        leader = self._leader_of(SHARE_STATE_TOPIC, key)
        return _known(key, None if leader is None else endpoint(leader, listener))

    def _coordinator(self, access: Access, key: str, key_type: int, listener: str) -> Coordinator:
        try:
            access.check(AclOperation.DESCRIBE, _RESOURCES[key_type], key)
        except KafkaError as error:
            return _unknown(key, error)
        return _known(key, self._find(key, key_type, listener))

    def _find(self, key: str, key_type: int, listener: str) -> Endpoint | None:
        found = self._leader_of(OFFSETS_TOPIC, key) if key_type == GROUP_KEY else self._speaker_for(key)
        return endpoint(found, listener) if found is not None else None

    def _leader_of(self, internal_topic: str, key: str) -> BrokerState | None:
        image = self._quorum.image
        return image.brokers.get(leader_for(key, internal_topic, image))

    def _speaker_for(self, transactional_id: str) -> BrokerState | None:
        image = self._quorum.image
        return image.brokers.get(coordinator_of(transactional_id, image))

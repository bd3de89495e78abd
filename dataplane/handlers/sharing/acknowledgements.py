"""Acknowledgements of share groups' members for the records that they have taken (KIP-932), alone or in a producer's
transaction.

A transaction covers what the producer writes and what the member acknowledges: the quorum decides both in one entry.
"""

from __future__ import annotations

from collections.abc import Callable

from ....protocol.cluster.acls import AclOperation, AclResourceType
from ....protocol.cluster.cluster_image import ClusterImage
from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.features import SHARE, SHARE_WITH_DEAD_LETTERS
from ....protocol.messages.share_fetch import (
    CLOSE_SESSION_EPOCH,
    AcknowledgedPartition,
    LeaderIdAndEpoch,
    NodeEndpoint,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
    ShareFetchRequest,
)
from ....protocol.messages.share_transactions import TxnShareAcknowledgeRequest, TxnShareAcknowledgeResponse
from ...cluster.endpoints import LEADERSHIP_ERRORS, endpoints_of, leader_of
from ...coordinated_log.transactional_producer import TransactionalProducer
from ...server.handler import ClientRequest
from ...share.feature import check_level
from ...share.leader.acknowledging import AcknowledgeRound, acknowledged_ranges
from ...share.leader.share_partitions import SharePartitions
from ...share.leader.share_sessions import ShareSessions
from ...share.sessions import CLOSING_EPOCH, SessionKey, SharedPartition
from ...transactions.argument_checks import check_transactional_id

FIRST_WITH_RENEWALS = 2

_MEMBER_ID_MAX = 36
"""Maximum length of a member id, which is a UUID."""


class ShareAcknowledgements:
    """The acknowledgements that members of share groups send without a fetch."""

    def __init__(
        self,
        partitions: SharePartitions,
        sessions: ShareSessions,
        image: Callable[[], ClusterImage],
        share_version: Callable[[], int],
    ) -> None:
        """`share_version` returns the level of the feature share.version that is in force."""
        self._partitions = partitions
        self._sessions = sessions
        self._image = image
        self._share_version = share_version

    def acknowledge(self, request: ClientRequest, message: ShareAcknowledgeRequest) -> None:
        """Apply acknowledgements, and answer once they are durable. Epoch -1 also closes the share session."""
        key = checked_member(request, message, self._share_version)
        named = acknowledged_ranges(message.topics)
        self._sessions.acknowledge(key, message.share_session_epoch)
        self._partitions.counters.acknowledge_requests += 1
        acknowledging = AcknowledgeRound(lambda: request.reply(self._response(request, key, acknowledging)))
        acknowledging.apply(
            self._partitions,
            key,
            named,
            request.access,
            self._image(),
            has_renewals=request.api_version >= FIRST_WITH_RENEWALS and message.is_renew_ack,
        )
        if message.share_session_epoch == CLOSE_SESSION_EPOCH:
            self._sessions.close(key, acknowledging)
        acknowledging.sealed()

    def _response(
        self, request: ClientRequest, key: SessionKey, acknowledging: AcknowledgeRound
    ) -> ShareAcknowledgeResponse:
        image = self._image()
        topics, leaders = acknowledged_topics(image, acknowledging)
        return ShareAcknowledgeResponse(
            acquisition_lock_timeout_ms=self._partitions.settings.get(key.group_id).limits.lock_duration_ms,
            responses=topics,
            node_endpoints=node_endpoints(image, leaders, request.listener),
        )

    def acknowledge_in_transaction(self, request: ClientRequest, message: TxnShareAcknowledgeRequest) -> None:
        """Acknowledge records in a transaction. Answer once the acknowledgements are part of it."""
        if self._share_version() < SHARE_WITH_DEAD_LETTERS:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"acknowledgements in transactions need the feature {SHARE} at level {SHARE_WITH_DEAD_LETTERS}",
            )
        key = checked_member(request, message, self._share_version)
        check_transactional_id(message.transactional_id)
        if message.producer_id < 0 or message.producer_epoch < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The request names no producer id and epoch.")
        if message.share_session_epoch == CLOSING_EPOCH:
            raise KafkaError(
                ErrorCode.INVALID_SHARE_SESSION_EPOCH, "A TxnShareAcknowledge cannot close a share session."
            )
        named = acknowledged_ranges(message.topics)
        self._sessions.acknowledge(key, message.share_session_epoch)
        self._partitions.counters.acknowledge_requests += 1
        writer = TransactionalProducer(message.transactional_id, message.producer_id, message.producer_epoch)
        acknowledging = AcknowledgeRound(
            lambda: request.reply(self._response_in_transaction(request, acknowledging))
        )
        acknowledging.apply_in_transaction(
            self._partitions, key, named, request.access, self._image(), writer
        )
        acknowledging.sealed()

    def _response_in_transaction(
        self, request: ClientRequest, acknowledging: AcknowledgeRound
    ) -> TxnShareAcknowledgeResponse:
        image = self._image()
        topics, leaders = acknowledged_topics(image, acknowledging)
        return TxnShareAcknowledgeResponse(
            responses=topics, node_endpoints=node_endpoints(image, leaders, request.listener)
        )


def acknowledged_topics(
    image: ClusterImage, acknowledging: AcknowledgeRound
) -> tuple[list[ShareAcknowledgeTopicResponse], set[int]]:
    """Return the results of acknowledgements by topic, and the leaders that they name."""
    topics: dict[bytes, ShareAcknowledgeTopicResponse] = {}
    leaders: set[int] = set()
    for partition, error in acknowledging.results.items():
        row = AcknowledgedPartition(partition_index=partition.partition)
        if error is not None:
            row.error_code, row.error_message = error.code, error.message
            if error.code in LEADERSHIP_ERRORS:
                row.current_leader = current_leader(image, partition)
                leaders.add(row.current_leader.leader_id)
        topic = topics.get(partition.topic_id)
        if topic is None:
            topic = topics[partition.topic_id] = ShareAcknowledgeTopicResponse(
                topic_id=partition.topic_id, partitions=[]
            )
        topic.partitions.append(row)
    return list(topics.values()), leaders


def checked_member(
    request: ClientRequest,
    message: ShareFetchRequest | ShareAcknowledgeRequest | TxnShareAcknowledgeRequest,
    share_version: Callable[[], int],
) -> SessionKey:
    """Return the group and the member of a request.

    Raises KafkaError: UNSUPPORTED_VERSION if share groups are not in force, INVALID_REQUEST without a valid group and
    member id, GROUP_AUTHORIZATION_FAILED.
    """
    check_level(share_version())
    group_id, member_id = message.group_id, message.member_id
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The request names no group.")
    request.access.check(AclOperation.READ, AclResourceType.GROUP, group_id)
    if not member_id or len(member_id) > _MEMBER_ID_MAX:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"The member id has {len(member_id or '')} characters; it must have 1 to {_MEMBER_ID_MAX}.",
        )
    return SessionKey(group_id, member_id)


def current_leader(image: ClusterImage, partition: SharedPartition) -> LeaderIdAndEpoch:
    """Return the leader of a partition, for a client that asked another broker."""
    leader_id, leader_epoch = leader_of(image.topics_by_id.get(partition.topic_id), partition.partition)
    return LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)


def node_endpoints(image: ClusterImage, leaders: set[int], listener: str) -> list[NodeEndpoint]:
    """Return the addresses of leaders for clients of a listener."""
    return [
        NodeEndpoint(node_id=place.broker_id, host=place.host, port=place.port, rack=place.rack)
        for place in endpoints_of(image, leaders, listener)
    ]

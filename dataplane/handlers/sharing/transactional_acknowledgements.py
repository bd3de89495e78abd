"""Acknowledgements of share groups' members in a producer's transaction.

The transaction covers what the producer writes and what the member acknowledges: the quorum decides both in one entry.
"""

from __future__ import annotations

from collections.abc import Callable

from ....protocol.cluster.cluster_image import ClusterImage
from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.features import SHARE, SHARE_WITH_DEAD_LETTERS
from ....protocol.messages.share_transactions import TxnShareAcknowledgeRequest, TxnShareAcknowledgeResponse
from ...coordinated_log.transactional_producer import TransactionalProducer
from ...server.handler import ClientRequest
from ...share.leader.acknowledging import AcknowledgeRound, acknowledged_ranges
from ...share.leader.share_partitions import SharePartitions
from ...share.leader.share_sessions import ShareSessions
from ...share.sessions import CLOSING_EPOCH
from ...transactions.argument_checks import check_transactional_id
from .acknowledgements import acknowledged_topics, checked_member, node_endpoints


class TransactionalAcknowledgements:
    """The acknowledgements that members of share groups make part of a producer's transaction."""

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

    def acknowledge(self, request: ClientRequest, message: TxnShareAcknowledgeRequest) -> None:
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
        acknowledging = AcknowledgeRound(lambda: request.reply(self._response(request, acknowledging)))
        acknowledging.apply_in_transaction(
            self._partitions, key, named, request.access, self._image(), writer
        )
        acknowledging.sealed()

    def _response(
        self, request: ClientRequest, acknowledging: AcknowledgeRound
    ) -> TxnShareAcknowledgeResponse:
        image = self._image()
        topics, leaders = acknowledged_topics(image, acknowledging)
        return TxnShareAcknowledgeResponse(
            responses=topics, node_endpoints=node_endpoints(image, leaders, request.listener)
        )

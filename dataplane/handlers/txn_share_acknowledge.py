"""TxnShareAcknowledge (0): members of a share group acknowledge records in a producer's transaction. The API is Ottla's
own.

The transaction covers what the producer writes and what the member acknowledges: the quorum decides both in one entry.
"""

from __future__ import annotations

from collections.abc import Callable

from ...protocol.cluster.acls import AclOperation
from ...protocol.cluster.cluster_image import ClusterImage
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.features import SHARE, SHARE_WITH_DEAD_LETTERS
from ...protocol.messages.share_transactions import TxnShareAcknowledgeRequest, TxnShareAcknowledgeResponse
from ..security.authorization.needs import handler_asks, transactional_id
from ..server.handler import ClientRequest, handles
from ..share.leader.acknowledging import AcknowledgeRound, acknowledged_ranges
from ..share.leader.share_partitions import SharePartitions
from ..share.leader.share_sessions import ShareSessions
from ..share.sessions import CLOSING_EPOCH, SessionKey
from ..share.transaction_writer import TransactionWriter
from ..transactions.argument_checks import check_transactional_id
from .share_acknowledge import ACKNOWLEDGEMENTS_MAX, acknowledged_topics, checked_member, node_endpoints


class TxnShareAcknowledgeHandlers:
    """The handler of TxnShareAcknowledge."""

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

    @handles(
        TxnShareAcknowledgeRequest,
        0,
        0,
        feature=SHARE,
        needs=transactional_id(AclOperation.WRITE) & handler_asks("READ Group, READ Topic"),
        elements_max=ACKNOWLEDGEMENTS_MAX,
    )
    def txn_share_acknowledge(self, request: ClientRequest, message: TxnShareAcknowledgeRequest) -> None:
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
        writer = TransactionWriter(message.transactional_id, message.producer_id, message.producer_epoch)
        acknowledging = AcknowledgeRound(lambda: request.reply(self._response(request, key, acknowledging)))
        acknowledging.apply_in_transaction(
            self._partitions, key, named, request.access, self._image(), writer
        )
        acknowledging.sealed()

    def _response(
        self, request: ClientRequest, _key: SessionKey, acknowledging: AcknowledgeRound
    ) -> TxnShareAcknowledgeResponse:
        image = self._image()
        topics, leaders = acknowledged_topics(image, acknowledging)
        return TxnShareAcknowledgeResponse(
            responses=topics, node_endpoints=node_endpoints(image, leaders, request.listener)
        )

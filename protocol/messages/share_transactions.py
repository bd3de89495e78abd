"""TxnShareAcknowledge (20014): a member of a share group acknowledges records in a producer's transaction. An API of
Ottla's own, under a key that Kafka does not use. It is near to Kafka's proposal KIP-1289."""

from __future__ import annotations

from ..wire.schema import Message, Request, array, int16, int32, int64, request, response, string
from .share_fetch import AcknowledgeTopic, NodeEndpoint, ShareAcknowledgeTopicResponse


@response(20014, "0", flexible="0+")
class TxnShareAcknowledgeResponse(Message):
    """Answer to TxnShareAcknowledgeRequest."""

    throttle_time_ms: int = int32(ignorable=True, about="How long a quota delayed the request, in ms.")
    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(
        nullable="0+", default=None, about="Explanation for people; null without one."
    )
    responses: list[ShareAcknowledgeTopicResponse] = array(
        ShareAcknowledgeTopicResponse,
        about="Results, by topic. After an error the acknowledgements of the partition may be part of the transaction, "
        "which has to be aborted.",
    )
    node_endpoints: list[NodeEndpoint] = array(
        NodeEndpoint, about="Addresses of the leaders named in `current_leader`."
    )


@request(20014, "0", flexible="0+", response=TxnShareAcknowledgeResponse)
class TxnShareAcknowledgeRequest(Request[TxnShareAcknowledgeResponse]):
    """Request to acknowledge records that a member of a share group has taken, together with a producer's transaction.

    A commit ends the records, an abort makes them available again, with their delivery count as it is. Until then the
    member holds them without a lock. The records' leader answers.
    """

    transactional_id: str = string(about="Transactional id of the producer.")
    producer_id: int = int64(about="Producer id of the producer.")
    producer_epoch: int = int16(about="Producer epoch of the producer.")
    group_id: str | None = string(nullable="0+", default=None, about="Id of the group.")
    member_id: str | None = string(nullable="0+", about="Id of the member.")
    share_session_epoch: int = int32(about="Epoch of the share session, one more each time.")
    topics: list[AcknowledgeTopic] = array(AcknowledgeTopic, about="Acknowledgements, by topic.")

"""AbortTransaction (20005): ends an open transaction for an operator. An API of Ottla's own, under a key that Kafka
does not use."""

from __future__ import annotations

from ..wire.schema import Message, Request, int16, request, response, string


@response(20005, "0", flexible="0+")
class AbortTransactionResponse(Message):
    """Answer to AbortTransactionRequest."""

    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(
        default=None, nullable="0+", about="Explanation for people; null without one."
    )


@request(20005, "0", flexible="0+", response=AbortTransactionResponse)
class AbortTransactionRequest(Request[AbortTransactionResponse]):
    """Request to abort the open transaction of a transactional id, whichever producer owns it; that producer is fenced.

    Any broker answers. Nothing happens if no transaction is open. Kafka's tools write abort markers into single
    partitions instead.
    """

    transactional_id: str = string(about="Transactional id of the transaction.")

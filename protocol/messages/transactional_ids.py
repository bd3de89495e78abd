"""DeleteTransactionalId (20006): an operator removes a transactional id. An API of Ottla's own, under a key that Kafka
does not use."""

from __future__ import annotations

from ..wire.schema import Message, Request, int16, request, response, string


@response(20006, "0", flexible="0+")
class DeleteTransactionalIdResponse(Message):
    """Answer to DeleteTransactionalIdRequest."""

    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(
        default=None, nullable="0+", about="Explanation for people; null without one."
    )


@request(20006, "0", flexible="0+", response=DeleteTransactionalIdResponse)
class DeleteTransactionalIdRequest(Request[DeleteTransactionalIdResponse]):
    """Request to remove a transactional id with everything that is known of it, its application version included.

    Any broker answers. The request is refused while a transaction of the id is open or is missing markers. Kafka has no
    such request: there ids only expire.
    """

    transactional_id: str = string(about="Transactional id.")

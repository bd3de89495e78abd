"""DeleteTransactionalId (20006), an API of Ottla's own under a key that Kafka does not use: people remove an id."""

from __future__ import annotations

from ..schema import Message, Request, int16, request, response, string


@response(20006, "0", flexible="0+")
class DeleteTransactionalIdResponse(Message):
    """Answer to DeleteTransactionalIdRequest."""

    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(
        default=None, nullable="0+", about="Explanation for people; null without one."
    )


@request(20006, "0", flexible="0+", response=DeleteTransactionalIdResponse)
class DeleteTransactionalIdRequest(Request[DeleteTransactionalIdResponse]):
    """Remove a transactional id with all that is known of it, its application version included.

    Any broker answers. Refused while a transaction of it is open or lacks markers. Kafka's ids expire, no more.
    """

    transactional_id: str = string(about="Which.")

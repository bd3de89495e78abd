"""UnregisterBroker (64): removes the registration of a broker that will not come back."""

from __future__ import annotations

from ..wire.schema import Message, Request, int16, int32, request, response, string


@response(64, "0", flexible="0+")
class UnregisterBrokerResponse(Message):
    """Answer to UnregisterBrokerRequest."""

    throttle_time_ms: int = int32(about="How long a quota delayed the request, in ms.")
    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(nullable="0+", about="Explanation for people; null without one.")


@request(64, "0", flexible="0+", response=UnregisterBrokerResponse)
class UnregisterBrokerRequest(Request[UnregisterBrokerResponse]):
    """Request to remove the registration of a broker."""

    broker_id: int = int32(about="node.id of the broker.")

"""SaslHandshake (17), SaslAuthenticate (36): authentication of a client (KIP-43, KIP-152, KIP-368)."""

from __future__ import annotations

from typing import Final

from ..wire.schema import Message, Request, array, bytes_, int16, int64, request, response, string

OAUTHBEARER: Final = "OAUTHBEARER"
GSSAPI: Final = "GSSAPI"
"""Names of mechanisms (KIP-255, RFC 4752)."""


@response(17, "0-1", flexible="none")
class SaslHandshakeResponse(Message):
    """Answer to SaslHandshakeRequest."""

    error_code: int = int16(about="Error code, 0 for success.")
    mechanisms: list[str] = array(string, about="Mechanisms that the listener offers.")


@request(17, "0-1", flexible="none", response=SaslHandshakeResponse)
class SaslHandshakeRequest(Request[SaslHandshakeResponse]):
    """Request to choose a SASL mechanism. After version 0 the mechanism's messages follow without headers, after
    version 1 in SaslAuthenticate."""

    mechanism: str = string(about="Name of the mechanism.")


@response(36, "0-2", flexible="2+")
class SaslAuthenticateResponse(Message):
    """Answer to SaslAuthenticateRequest."""

    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(nullable="0+", about="Explanation for people; null without one.")
    auth_bytes: bytes = bytes_(secret=True, about="The mechanism's next message from the server.")
    session_lifetime_ms: int = int64(
        "1+", ignorable=True, about="Time for which the login is valid, in ms; 0 for ever."
    )


@request(36, "0-2", flexible="2+", response=SaslAuthenticateResponse)
class SaslAuthenticateRequest(Request[SaslAuthenticateResponse]):
    """Request that carries one message of the SASL mechanism which the client has chosen."""

    auth_bytes: bytes = bytes_(secret=True, about="The mechanism's next message from the client.")

"""SaslHandshake (0-1) and SaslAuthenticate (0-2) of peers that have logged in, or need not (KIP-43, KIP-368).

Handlers do not handle first logins: `server.authentication` reads their frames. The requests here are handshakes by
which a client authenticates again, and requests that are out of place.
"""

from __future__ import annotations

from ...protocol.errors import ErrorCode
from ...protocol.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from ..security.authorization.needs import NOTHING
from ..server.authentications import Authentications
from ..server.handler import ClientRequest, handles


class SaslHandlers:
    """The handlers by which clients that have logged in renew their logins on the same connection."""

    def __init__(self, authentications: Authentications) -> None:
        self._authentications = authentications

    @handles(SaslHandshakeRequest, 0, 1, needs=NOTHING)
    def handshake(
        self, request: ClientRequest, message: SaslHandshakeRequest
    ) -> SaslHandshakeResponse | None:
        """Begin to authenticate again. The error is ILLEGAL_SASL_STATE without SASL, or within a second after the last
        login."""
        authentication = self._authentications.of(request.connection)
        if authentication is not None and authentication.renew(request, message):
            return None
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)

    @handles(SaslAuthenticateRequest, 0, 2, needs=NOTHING)
    def authenticate(
        self, request: ClientRequest, message: SaslAuthenticateRequest
    ) -> SaslAuthenticateResponse:
        """Refuse a SaslAuthenticate request that no SaslHandshake preceded."""
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE,
            error_message="SaslAuthenticate request received after successful authentication",
        )

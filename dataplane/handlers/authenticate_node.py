"""AuthenticateNode (0), Ottla's own: a node proves once for a connection that it holds the cluster secret.

Only this proof distinguishes a broker from a client. The connection gets the session of a node, and handlers check
`PeerSession.node` and `ClientConnection.is_broker`.
"""

from __future__ import annotations

import logging
import os

from ...protocol.messages.node_authentication import AuthenticateNodeRequest, AuthenticateNodeResponse
from ...protocol.session.node_proof import NONCE_BYTES, NodeCredentials, ProofRefused, ServerProof
from ..security.authorization.needs import NOTHING
from ..server.handler import ClientRequest, handles

logger = logging.getLogger(__name__)


class AuthenticateNodeHandlers:
    """The handler that checks whether a peer holds the cluster secret, and marks its connection with a valid proof."""

    def __init__(self, credentials: NodeCredentials) -> None:
        self._credentials = credentials

    @handles(AuthenticateNodeRequest, 0, 0, needs=NOTHING)
    def authenticate(
        self, request: ClientRequest, message: AuthenticateNodeRequest
    ) -> AuthenticateNodeResponse | None:
        """Return the broker's next message of the authentication exchange with a node. A refusal closes the connection
        unanswered."""
        connection = request.connection
        # No quota holds up a follower. An unauthenticated peer has one attempt for each connection, which are counted.
        request.meter = None
        proof = connection.node_proof
        if proof is None:
            proof = connection.node_proof = ServerProof(self._credentials, os.urandom(NONCE_BYTES))
        try:
            answer = proof.receive(message.auth_bytes)
        except ProofRefused as error:
            logger.warning(
                "closing the connection of %s, which is no node of this cluster: %s", connection, error
            )
            request.close_connection()
            return None
        if proof.peer is not None:
            connection.session = connection.session.of_node(proof.peer)
        return AuthenticateNodeResponse(auth_bytes=answer)

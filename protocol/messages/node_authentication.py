"""AuthenticateNode (20007), an API of Ottla's own under a key that Kafka does not use: nodes prove who they are.

The messages of `protocol.node_proof` travel in it, two requests for each connection.
"""

from __future__ import annotations

from ..schema import Message, Request, bytes_, request, response


@response(20007, "0", flexible="0+")
class AuthenticateNodeResponse(Message):
    """Answer to AuthenticateNodeRequest. Whoever is refused gets none: the connection is closed."""

    auth_bytes: bytes = bytes_(about="The broker's next message.")


@request(20007, "0", flexible="0+", response=AuthenticateNodeResponse)
class AuthenticateNodeRequest(Request[AuthenticateNodeResponse]):
    """Prove that this connection comes from a node of the cluster, which holds the cluster secret."""

    auth_bytes: bytes = bytes_(about="The client's next message.")

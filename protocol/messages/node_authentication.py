"""AuthenticateNode (20007): nodes prove that they belong to the cluster. An API of Ottla's own, under a key that Kafka
does not use.

It carries the messages of `protocol.session.node_proof`, two requests for each connection.
"""

from __future__ import annotations

from ..wire.schema import Message, Request, bytes_, request, response


@response(20007, "0", flexible="0+")
class AuthenticateNodeResponse(Message):
    """Answer to AuthenticateNodeRequest. A client that is refused gets no answer: the broker closes the connection."""

    auth_bytes: bytes = bytes_(about="Next message of the broker.")


@request(20007, "0", flexible="0+", response=AuthenticateNodeResponse)
class AuthenticateNodeRequest(Request[AuthenticateNodeResponse]):
    """Request with a proof that this connection comes from a node that holds the cluster secret."""

    auth_bytes: bytes = bytes_(about="Next message of the client.")

"""An operator's proof to a broker of knowing the cluster secret.

On that connection the broker then accepts requests that are reserved for nodes of the cluster.
"""

from __future__ import annotations

import os

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.node_authentication import AuthenticateNodeRequest
from ...protocol.session.node_proof import (
    INCARNATION_BYTES,
    NO_NODE,
    NONCE_BYTES,
    ClientProof,
    NodeCredentials,
    NodeRole,
    ProofRefused,
)
from ...protocol.session.node_secrets import Secrets
from ..failures import ConnectionLost
from .connection import Connection


async def prove_operator(connection: Connection, secret: bytes, cluster_id: str, broker_id: int) -> None:
    """Mark a fresh connection to `broker_id` as an operator's.

    `secret`: the content of a node's secret file, of which the first line counts. Raises KafkaError:
    CLUSTER_AUTHORIZATION_FAILED if one end does not know the secret; RequestTimedOut; VersionUnsupported.
    """
    incarnation = os.urandom(INCARNATION_BYTES)
    own = NodeCredentials.of(Secrets.parse(secret), cluster_id, NO_NODE, incarnation, NodeRole.OPERATOR)
    proof = ClientProof(own, broker_id, os.urandom(NONCE_BYTES))
    message = proof.claim
    try:
        while not proof.done:
            answer = await connection.request(AuthenticateNodeRequest(auth_bytes=message))
            message = proof.receive(answer.auth_bytes)
    except ConnectionLost:
        raise KafkaError(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            f"broker {broker_id} refuses the proof: the secret is not that of cluster {cluster_id!r} "
            "(cluster.secret.file on its nodes)",
        ) from None
    except ProofRefused as error:
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, str(error)) from None

"""Tools for tests that pose as brokers: the credentials of a node, and the exchange over a raw connection."""

from __future__ import annotations

import os
from pathlib import Path

from ottla.cli.local_cluster.layout import known_layout
from ottla.protocol.messages.node_authentication import AuthenticateNodeRequest
from ottla.protocol.session.node_proof import (
    INCARNATION_BYTES,
    NO_NODE,
    NONCE_BYTES,
    ClientProof,
    NodeCredentials,
    NodeRole,
)
from ottla.protocol.session.node_secrets import Secrets
from tests.raw_peer import Peer

SECRET = b"what only nodes of the test's cluster know"
CLUSTER_ID = "cluster"


def credentials(
    node_id: int,
    *,
    secret: bytes = SECRET,
    cluster_id: str = CLUSTER_ID,
    role: NodeRole = NodeRole.BROKER,
) -> NodeCredentials:
    """Return credentials of a broker that a test plays, or of an operator."""
    return NodeCredentials.of(Secrets.parse(secret), cluster_id, node_id, os.urandom(INCARNATION_BYTES), role)


def credentials_in(directory: Path, node_id: int = NO_NODE) -> NodeCredentials:
    """Return credentials of a broker of the `ottla up` cluster in this folder; without an id, of an operator."""
    role = NodeRole.OPERATOR if node_id == NO_NODE else NodeRole.BROKER
    secret = (directory / "cluster.secret").read_bytes()
    return credentials(node_id, secret=secret, cluster_id=known_layout(directory).cluster_id, role=role)


def prove(peer: Peer, own: NodeCredentials, server_id: int) -> None:
    """Go through the exchange with the broker `server_id`. Raises ConnectionError if the broker refuses."""
    proof = ClientProof(own, server_id, os.urandom(NONCE_BYTES))
    message = proof.claim
    while not proof.done:
        answer = peer.ask(AuthenticateNodeRequest(auth_bytes=message), 0)
        message = proof.receive(answer.auth_bytes)

"""Mutual proof of the two ends of a connection to a broker's listener that they hold the cluster secret.

A broker that follows another broker proves itself before it fetches, and an operator with the secret can do the same. A
server accepts each of the secrets in its file, and answers with the secret that the client used:

1. client -> server  magic, version, role, node id, id of the intended server, incarnation, nonce, cluster id
2. server -> client  nonce
3. client -> server  proof
4. server -> client  proof

Each proof is HMAC-SHA-256 over all messages so far. Its key derives from the secret, for this purpose alone. So a proof
is valid for one connection (both nonces are fresh), one pair of nodes (it covers both ids) and one direction (it covers
a label): it can be neither replayed, nor relayed to another broker, nor reflected. The client proves itself first, so a
server sends an unauthenticated peer nothing that depends on the secret.

The proof identifies the other end at that moment. The connection itself is neither encrypted nor authenticated: an
attacker on the path who can change packets can still use it.

The messages travel in AuthenticateNode requests, which treat them as opaque, so that a SASL mechanism can carry the
same four. Sans-IO: nonces come in as arguments, bytes go out as values.
"""

from __future__ import annotations

import hmac
import struct
from dataclasses import dataclass, field
from enum import IntEnum
from hashlib import sha256
from typing import Final

from .node_secrets import Secrets

MAGIC: Final = b"OTTN"
VERSION: Final = 1
NONCE_BYTES: Final = 32
PROOF_BYTES: Final = 32
INCARNATION_BYTES: Final = 16
MAX_CLUSTER_ID_BYTES: Final = 128
NO_NODE: Final = -1
"""Node id of an operator."""

_KEY_LABEL: Final = b"inter-broker\0"
_CLAIM: Final = struct.Struct(f">4sBBii{INCARNATION_BYTES}s{NONCE_BYTES}sB")
MAX_MESSAGE_BYTES: Final = _CLAIM.size + MAX_CLUSTER_ID_BYTES


class NodeRole(IntEnum):
    """Roles in which a client proves itself to a broker: broker or operator."""

    BROKER = 1
    OPERATOR = 2


class ProofRefused(Exception):
    """A failed proof of the other end. The text gives the reason, and the identity that the other end claimed."""


@dataclass(frozen=True, slots=True)
class ProvenNode:
    """Identity of the other end of a connection. The node id of an operator is NO_NODE."""

    role: NodeRole
    node_id: int


@dataclass(frozen=True, slots=True)
class NodeCredentials:
    """The identity and the keys with which a node proves itself, and checks the proofs of other nodes."""

    node_id: int
    cluster_id: str
    incarnation: bytes
    role: NodeRole = NodeRole.BROKER
    keys: tuple[bytes, ...] = field(default=(), repr=False)
    """Keys derived from the secrets. The first key is used for dialling, all are accepted."""

    @classmethod
    def of(
        cls,
        secrets: Secrets,
        cluster_id: str,
        node_id: int,
        incarnation: bytes,
        role: NodeRole = NodeRole.BROKER,
    ) -> NodeCredentials:
        """Make credentials from the secrets of the cluster. `incarnation`: 16 random bytes, drawn by each process."""
        if len(incarnation) != INCARNATION_BYTES:
            raise ValueError(f"the incarnation has {len(incarnation)} bytes, it must be {INCARNATION_BYTES}")
        if len(cluster_id.encode()) > MAX_CLUSTER_ID_BYTES:
            raise ValueError(f"cluster id is over {MAX_CLUSTER_ID_BYTES} bytes: {cluster_id[:40]!r}...")
        label = _KEY_LABEL + cluster_id.encode()
        keys = tuple(hmac.digest(secret, label, sha256) for secret in secrets.accepted)
        return cls(node_id, cluster_id, incarnation, role, keys)


class ClientProof:
    """The dialling end of a mutual proof. `server_id` is the id of the broker that it intends to reach."""

    def __init__(self, credentials: NodeCredentials, server_id: int, nonce: bytes) -> None:
        self._key = credentials.keys[0]
        self._server_id = server_id
        cluster_id = credentials.cluster_id.encode()
        self.claim = (
            _CLAIM.pack(
                MAGIC,
                VERSION,
                credentials.role,
                credentials.node_id,
                server_id,
                credentials.incarnation,
                _checked(nonce),
                len(cluster_id),
            )
            + cluster_id
        )
        """First message of the client."""
        self._said = self.claim
        self._proved = False
        self.done = False
        """True if the server has proved itself, too."""

    def receive(self, message: bytes) -> bytes:
        """Process the server's next message, and return the client's next message; empty after the server's proof.

        Raises ProofRefused if the server does not hold the secret, or is another broker.
        """
        if self.done:
            raise ProofRefused(f"broker {self._server_id} answers after the end of the exchange")
        if not self._proved:
            if len(message) != NONCE_BYTES:
                raise ProofRefused(
                    f"broker {self._server_id} sent a nonce of {len(message)} bytes, expected {NONCE_BYTES}"
                )
            self._said += message
            proof = _client_proof(self._key, self._said)
            self._said += proof
            self._proved = True
            return proof
        if not hmac.compare_digest(message, _server_proof(self._key, self._said)):
            raise ProofRefused(
                f"what answers as broker {self._server_id} does not hold this cluster's secret "
                "(cluster.secret.file)"
            )
        self.done = True
        return b""


class ServerProof:
    """The accepting end of a mutual proof, for one attempt of one connection."""

    def __init__(self, credentials: NodeCredentials, nonce: bytes) -> None:
        self._credentials = credentials
        self._nonce = _checked(nonce)
        self._said = b""
        self._claimed: ProvenNode | None = None
        self._over = False
        self.peer: ProvenNode | None = None
        """Proved identity of the client; None before its proof."""

    def receive(self, message: bytes) -> bytes:
        """Take the client's next message, and return the answer. Raises ProofRefused; then no answer is sent."""
        if self._over:
            raise ProofRefused("a connection has one attempt to prove itself")
        self._over = True  # reset below if the claim is valid
        if self._claimed is None:
            self._claimed = self._check_claim(message)
            self._said = message + self._nonce
            self._over = False
            return self._nonce
        for key in self._credentials.keys:
            if hmac.compare_digest(message, _client_proof(key, self._said)):
                break
        else:
            raise ProofRefused(
                f"{_named(self._claimed)}: the proof is wrong. Has it the same cluster.secret.file as this broker?"
            )
        self.peer = self._claimed
        return _server_proof(key, self._said + message)

    def _check_claim(self, message: bytes) -> ProvenNode:
        if not _CLAIM.size <= len(message) <= MAX_MESSAGE_BYTES:
            raise ProofRefused(
                f"a claim of {len(message)} bytes, allowed are {_CLAIM.size} to {MAX_MESSAGE_BYTES}"
            )
        magic, version, role, node_id, server_id, _, _, length = _CLAIM.unpack_from(message)
        cluster_id = message[_CLAIM.size :]
        if magic != MAGIC or len(cluster_id) != length:
            raise ProofRefused("a claim that cannot be read")
        if version != VERSION:
            raise ProofRefused(
                f"it claims node id {node_id} in version {version} of the exchange, this broker speaks {VERSION}"
            )
        try:
            claimed = ProvenNode(NodeRole(role), node_id)
        except ValueError:
            raise ProofRefused(
                f"it claims node id {node_id} in the unknown role {role}, known are BROKER (1) and OPERATOR (2)"
            ) from None
        if (claimed.role is NodeRole.BROKER) != (node_id >= 0):
            raise ProofRefused(f"it claims node id {node_id} as {claimed.role.name}")
        own = self._credentials
        if cluster_id != own.cluster_id.encode():
            raise ProofRefused(
                f"{_named(claimed)} of cluster {cluster_id.decode(errors='replace')!r}, "
                f"this broker belongs to {own.cluster_id!r}"
            )
        if server_id != own.node_id:
            raise ProofRefused(f"{_named(claimed)} and means broker {server_id}, this is {own.node_id}")
        if node_id == own.node_id:
            raise ProofRefused(f"{_named(claimed)}, which is this broker itself")
        return claimed


def _named(claimed: ProvenNode) -> str:
    if claimed.role is NodeRole.OPERATOR:
        return "it claims to be an operator"
    return f"it claims to be broker {claimed.node_id}"


def _client_proof(key: bytes, said: bytes) -> bytes:
    return hmac.digest(key, b"client" + said, sha256)


def _server_proof(key: bytes, said: bytes) -> bytes:
    return hmac.digest(key, b"server" + said, sha256)


def _checked(nonce: bytes) -> bytes:
    if len(nonce) != NONCE_BYTES:
        raise ValueError(f"the nonce has {len(nonce)} bytes, it must be {NONCE_BYTES}")
    return nonce

"""Version 1 of the handshake between nodes as its two ends spoke it, byte by byte: what nodes of older versions say."""

from __future__ import annotations

import hmac
import struct
from hashlib import blake2b, sha256

from ottla.protocol.session.frames import TaggedChannel

NONCE = b"n" * 32


def message(body: bytes) -> bytes:
    return struct.pack(">H", len(body)) + body


def body_of(data: bytes) -> bytes:
    (length,) = struct.unpack_from(">H", data)
    assert len(data) == 2 + length
    return data[2:]


def identity(first: int, node_id: int, directory_id: bytes, cluster_id: bytes) -> bytes:
    return struct.pack(">Bi16sB", first, node_id, directory_id, len(cluster_id)) + cluster_id


def hello(nonce: bytes = NONCE) -> bytes:
    return message(struct.pack(">4sH32s", b"OTTL", 1, nonce))


class OldClient:
    """Knows no role but 1 and 2, and wants a hello of version 1 with nothing behind it."""

    def __init__(self, secret: bytes, role: int, cluster_id: bytes = b"cluster-a") -> None:
        self._secret = secret
        self._said = b""
        self._claim = identity(role, 2, b"c" * 16, cluster_id) + NONCE
        self._server_nonce = b""

    def answer(self, data: bytes) -> bytes:
        said = body_of(data)
        magic, version, self._server_nonce = struct.unpack(">4sH32s", said)
        assert (magic, version) == (b"OTTL", 1)
        self._said = said + self._claim
        return message(self._claim + hmac.digest(self._secret, b"client" + self._said, sha256))

    def channel(self, data: bytes) -> TaggedChannel:
        said = body_of(data)
        said, proof = said[:-32], said[-32:]
        assert proof == hmac.digest(self._secret, b"server" + self._said + said, sha256)
        assert struct.unpack_from(">Bi16sB", said)[0] == 0
        assert len(said) == 22 + said[21], "nothing after the identity"
        to_server, to_client, derivation = keys(self._secret, NONCE + self._server_nonce)
        return TaggedChannel(to_server, to_client, derivation)


class OldServer:
    """Refuses any role but 1 and 2, unanswered: None."""

    def __init__(self, secret: bytes, nonce: bytes = NONCE) -> None:
        self._secret = secret
        self._nonce = nonce
        self.roles: list[int] = []
        self.said = b""
        self.channel: TaggedChannel | None = None

    def answer(self, data: bytes) -> bytes | None:
        claim = body_of(data)
        claim, proof = claim[:-32], claim[-32:]
        said = body_of(hello(self._nonce)) + claim
        if proof != hmac.digest(self._secret, b"client" + said, sha256):
            return None
        self.roles.append(claim[0])
        if claim[0] not in (1, 2) or len(claim) != 22 + claim[21] + 32:
            return None
        own = identity(0, 1, b"s" * 16, b"cluster-a")
        to_server, to_client, derivation = keys(self._secret, claim[-32:] + self._nonce)
        self.channel = TaggedChannel(to_client, to_server, derivation)
        return message(own + hmac.digest(self._secret, b"server" + said + own, sha256))


def keys(secret: bytes, material: bytes) -> list[bytes]:
    labels = (b"client to server", b"server to client", b"derivation")
    return [
        blake2b(hmac.digest(secret, label + material, sha256), digest_size=32).digest() for label in labels
    ]

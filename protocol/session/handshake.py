"""The handshake that opens every connection between the nodes of a cluster.

Both ends prove that they hold the secret of the connection's role, and name themselves, before either trusts a byte:

1. server -> client  hello: magic, version, server nonce
2. client -> server  role, node id, directory id, cluster id, client nonce, client key, proof
3. server -> client  status, node id, directory id, cluster id, server key, proof

Each message is `u16 length | body` of at most `MAX_MESSAGE_BYTES`. A proof is HMAC-SHA-256 with the
secret over all messages so far, so that it is valid for this connection only. A server never answers a client whose
proof is wrong. It accepts each of its secrets, and answers with the secret that the client used.

The keys are ephemeral keys of X25519. HKDF-SHA-256 derives the keys of the encrypted frames from the X25519 shared
secret, the secret of the role and all messages. An attacker who learns the secret later cannot read recorded frames.

**Version 1**, of older nodes, has no keys in 2 and 3. Its frames are tagged and not encrypted. The hello of both
versions says 1, since older clients accept nothing else. A server that speaks version 2 ends its nonce with a mark. A
client that sees the mark asks for version 2 by the number of the role (0x81 to 0x83). The proofs cover the nonce: an
attacker who removes the mark, so that the two ends fall back to version 1, invalidates the proof.

Sans-IO: random bytes come in as an argument, messages go out as values.
"""

from __future__ import annotations

import hmac
import struct
from dataclasses import dataclass
from enum import IntEnum
from hashlib import blake2b, sha256

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from .frames import MAX_PAYLOAD_BYTES, Buffer, Channel, EncryptedChannel, TaggedChannel
from .node_secrets import MIN_SECRET_BYTES, Secrets

MAGIC = b"OTTL"
REFUSAL = b"DENY"
"""Marker of a refusal in place of the magic, used if the connection runs over TLS. A text follows."""
VERSION = 1
NONCE_BYTES = 32
KEY_BYTES = 32
CHANCE_BYTES = NONCE_BYTES + KEY_BYTES
PROOF_BYTES = 32
DIRECTORY_ID_BYTES = 16
MAX_MESSAGE_BYTES = 512
MAX_CLUSTER_ID_BYTES = 128

_ENCRYPTS = b"encrypts"
"""End of the nonce of a server that speaks version 2. The other 24 bytes are random."""
_ASKS_FOR_ENCRYPTION = 0x80
"""Flag that a client adds to the number of the role if it speaks version 2 from here on."""

_LENGTH = struct.Struct(">H")
_HELLO = struct.Struct(f">4sH{NONCE_BYTES}s")
_IDENTITY = struct.Struct(f">Bi{DIRECTORY_ID_BYTES}sB")


class Role(IntEnum):
    """Purposes of a connection between nodes: Raft, broker session or operator. A server decides by the role which of
    its parts serves the connection."""

    RAFT = 1
    BROKER = 2
    ADMIN = 3
    """An operator with the cluster secret; brokers no longer admit this role."""


class _Status(IntEnum):
    WELCOME = 0
    OTHER_CLUSTER = 1


class HandshakeError(Exception):
    """A failed handshake: the other end does not belong to this cluster. `reply` contains the bytes to send, if any,
    before closing."""

    def __init__(self, reason: str, reply: bytes = b"") -> None:
        super().__init__(reason)
        self.reason = reason
        self.reply = reply


@dataclass(frozen=True, slots=True)
class Identity:
    """Identity that one end of a handshake states. `directory_id` is the id of the data folder, or a broker's
    incarnation.

    An empty `cluster_id` means that this end has not learned its cluster yet and accepts any that shares the secret.
    """

    node_id: int
    directory_id: bytes
    cluster_id: str

    def __post_init__(self) -> None:
        if len(self.directory_id) != DIRECTORY_ID_BYTES:
            raise ValueError(
                f"directory id has {len(self.directory_id)} bytes, it must be {DIRECTORY_ID_BYTES}"
            )
        if len(self.cluster_id.encode()) > MAX_CLUSTER_ID_BYTES:
            raise ValueError(f"cluster id is over {MAX_CLUSTER_ID_BYTES} bytes: {self.cluster_id[:40]!r}...")


@dataclass(frozen=True, slots=True)
class LinkSecurity:
    """Secrets and encryption rule for a node's connections to other nodes. Raises ValueError for a secret that is too
    short."""

    cluster: Secrets
    """Secret that all nodes share. A process that holds it can act as a broker."""
    quorum: Secrets | None = None
    """Secret that only quorum nodes share; without it a process cannot get the role RAFT. None: the cluster's secret
    serves for both."""
    requires_encryption: bool = False
    """True if nodes that speak only version 1 are refused, as clients and as servers."""

    def __post_init__(self) -> None:
        for secret in (*self.cluster.accepted, *(self.quorum.accepted if self.quorum else ())):
            if len(secret) < MIN_SECRET_BYTES:
                raise ValueError(f"a secret has {len(secret)} bytes, at least {MIN_SECRET_BYTES} are needed")

    def of(self, role: Role) -> Secrets:
        """Return the secrets that connections of a role use."""
        return self.quorum if role is Role.RAFT and self.quorum is not None else self.cluster


@dataclass(frozen=True, slots=True)
class Peer:
    """The authenticated other end of a connection. `role` is the role of the connection, the same at both ends."""

    role: Role
    node_id: int
    directory_id: bytes
    cluster_id: str


class _Handshake:
    def __init__(
        self, security: LinkSecurity, identity: Identity, chance: bytes, max_payload_bytes: int
    ) -> None:
        if len(chance) != CHANCE_BYTES:
            raise ValueError(f"{len(chance)} random bytes were given, there must be {CHANCE_BYTES}")
        self._security = security
        self._secret = b""
        """Secret of this connection, set once its role and the client's choice are known."""
        self._identity = identity
        self._nonce = chance[:NONCE_BYTES]
        self._key_chance = chance[NONCE_BYTES:]
        self._max_payload_bytes = max_payload_bytes
        self._buffer = bytearray()
        self._transcript = bytearray()
        self._peer: Peer | None = None
        self._channel: Channel | None = None

    @property
    def done(self) -> bool:
        """True if both ends have proved themselves. `peer` and `channel` are available from then on."""
        return self._channel is not None

    @property
    def peer(self) -> Peer:
        """The other end. Raises RuntimeError before `done`."""
        if self._peer is None or self._channel is None:
            raise RuntimeError("the handshake is not done")
        return self._peer

    @property
    def channel(self) -> Channel:
        """The channel for the bytes after the handshake. Raises RuntimeError before `done`."""
        if self._channel is None:
            raise RuntimeError("the handshake is not done")
        return self._channel

    @property
    def has_heard(self) -> bool:
        """True if any byte of the other end has arrived."""
        return bool(self._transcript or self._buffer)

    @property
    def encrypted(self) -> bool:
        """True if the frames are encrypted, which they are not with a node of an older version. False before `done`."""
        return isinstance(self._channel, EncryptedChannel)

    @property
    def leftover(self) -> bytes:
        """Bytes received after the handshake. The caller has to feed them to `channel` first."""
        return bytes(self._buffer)

    def receive(self, data: Buffer) -> bytes:
        """Take received bytes, and return the bytes to send, which may be empty. Raises HandshakeError."""
        self._buffer += data
        output = b""
        while not self.done:
            body = self._take_message()
            if body is None:
                break
            output += self._step(body)
        return output

    def _take_message(self) -> bytes | None:
        if len(self._buffer) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer)
        if length > MAX_MESSAGE_BYTES:
            raise HandshakeError(
                f"handshake message of {length} bytes, at most {MAX_MESSAGE_BYTES} are allowed"
            )
        end = _LENGTH.size + length
        if len(self._buffer) < end:
            return None
        body = bytes(self._buffer[_LENGTH.size : end])
        del self._buffer[:end]
        return body

    def _step(self, body: bytes) -> bytes:
        raise NotImplementedError

    def _proof(self, label: bytes) -> bytes:
        return hmac.digest(self._secret, label + bytes(self._transcript), sha256)

    def _say(self, body: bytes, label: bytes) -> bytes:
        """Add `body` to the transcript of the handshake, and return the message: the body with the proof."""
        self._transcript += body
        return _message(body + self._proof(label))

    def _hear(self, body: bytes, label: bytes) -> bytes:
        """Add a received body to the transcript of the handshake, and return it without its proof. Raises
        HandshakeError if the proof is wrong."""
        if len(body) < _IDENTITY.size + PROOF_BYTES:
            raise HandshakeError(f"handshake message of {len(body)} bytes is too short")
        said, proof = body[:-PROOF_BYTES], body[-PROOF_BYTES:]
        self._transcript += said
        for secret in self._candidates(said):
            self._secret = secret
            if hmac.compare_digest(proof, self._proof(label)):
                return said
        raise HandshakeError(self._stranger(said))

    def _candidates(self, said: bytes) -> tuple[bytes, ...]:
        """Return the secrets with which the other end may have made its proof; `said` is its message."""
        raise NotImplementedError

    def _stranger(self, said: bytes) -> str:
        """Return the reason for refusing the other end, whose proof was made with none of the known secrets; `said` is
        its message."""
        raise NotImplementedError

    def _private_key(self) -> X25519PrivateKey:
        # Computed only when needed: it takes time, which a server must not spend on a client that has not proved
        # itself.
        return X25519PrivateKey.from_private_bytes(self._key_chance)

    def _public_key(self) -> bytes:
        return self._private_key().public_key().public_bytes_raw()

    def _encrypt(self, peer_key: bytes, *, is_client: bool) -> None:
        try:
            agreed = self._private_key().exchange(X25519PublicKey.from_public_bytes(peer_key))
        except ValueError:
            raise HandshakeError("the other end sent a key that agrees on nothing") from None
        said = sha256(self._transcript).digest()
        salt = hmac.digest(self._secret, b"keys of frames" + said, sha256)
        keys = HKDF(SHA256(), 3 * KEY_BYTES, salt, b"ottla link, version 2").derive(agreed)
        to_server, to_client, derivation = keys[:32], keys[32:64], keys[64:]
        sending, receiving = (to_server, to_client) if is_client else (to_client, to_server)
        self._channel = EncryptedChannel(sending, receiving, derivation, self._max_payload_bytes)

    def _tag_only(self, client_nonce: bytes, server_nonce: bytes, *, is_client: bool) -> None:
        material = client_nonce + server_nonce
        to_server, to_client, derivation = (
            blake2b(hmac.digest(self._secret, label + material, sha256), digest_size=32).digest()
            for label in (b"client to server", b"server to client", b"derivation")
        )
        sending, receiving = (to_server, to_client) if is_client else (to_client, to_server)
        self._channel = TaggedChannel(sending, receiving, derivation, self._max_payload_bytes)


class ServerHandshake(_Handshake):
    """The accepting end of a handshake. The caller has to send `hello` when the connection opens."""

    def __init__(
        self,
        security: LinkSecurity,
        identity: Identity,
        chance: bytes,
        max_payload_bytes: int = MAX_PAYLOAD_BYTES,
    ) -> None:
        """Begin a handshake. `chance`: `CHANCE_BYTES` random bytes, drawn for each connection."""
        super().__init__(security, identity, chance, max_payload_bytes)
        self._nonce = self._nonce[: -len(_ENCRYPTS)] + _ENCRYPTS
        self._said_hello = False

    def hello(self) -> bytes:
        """Return the server's hello, the first bytes of the connection."""
        if self._said_hello:
            raise RuntimeError("hello is said once")
        self._said_hello = True
        body = _HELLO.pack(MAGIC, VERSION, self._nonce)
        self._transcript += body
        return _message(body)

    def _candidates(self, said: bytes) -> tuple[bytes, ...]:
        is_raft = said[0] & ~_ASKS_FOR_ENCRYPTION == Role.RAFT
        return self._security.of(Role.RAFT if is_raft else Role.BROKER).accepted

    def _stranger(self, said: bytes) -> str:
        if said[0] & ~_ASKS_FOR_ENCRYPTION == Role.RAFT and self._security.quorum is not None:
            return (
                "the other end claims to be a quorum node and does not hold the secret of this quorum "
                "(quorum.secret.file)"
            )
        return "the other end does not hold this cluster's secret (cluster.secret.file)"

    def _step(self, body: bytes) -> bytes:
        asked = _parse_client(self._hear(body, b"client"))
        peer = asked.identity
        if not asked.key and (self._security.requires_encryption or asked.role is Role.ADMIN):
            raise HandshakeError(
                f"node {peer.node_id} ({asked.role.name}) speaks version 1 of the handshake only, without encryption, "
                "which cluster.link.encryption=required does not allow, nor the role ADMIN"
            )
        if _clusters_differ(peer.cluster_id, self._identity.cluster_id):
            raise HandshakeError(
                f"node {peer.node_id} belongs to cluster {peer.cluster_id!r}, "
                f"this node to {self._identity.cluster_id!r}",
                self._say(_pack_identity(_Status.OTHER_CLUSTER, self._identity), b"server"),
            )
        welcome = _pack_identity(_Status.WELCOME, self._identity)
        answer = self._say(welcome + self._public_key() if asked.key else welcome, b"server")
        self._peer = Peer(asked.role, peer.node_id, peer.directory_id, peer.cluster_id)
        if asked.key:
            self._encrypt(asked.key, is_client=False)
        else:
            self._tag_only(asked.nonce, self._nonce, is_client=False)
        return answer


class ClientHandshake(_Handshake):
    """The dialling end of a handshake, which chooses the role of the connection."""

    def __init__(
        self,
        security: LinkSecurity,
        identity: Identity,
        role: Role,
        chance: bytes,
        max_payload_bytes: int = MAX_PAYLOAD_BYTES,
    ) -> None:
        """Begin a handshake. `chance`: `CHANCE_BYTES` random bytes, drawn for each connection."""
        super().__init__(security, identity, chance, max_payload_bytes)
        self._role = role
        self._secret = security.of(role).first
        self._server_nonce: bytes | None = None
        self._server_encrypts = False

    def _candidates(self, said: bytes) -> tuple[bytes, ...]:
        return (self._secret,)

    def _stranger(self, said: bytes) -> str:
        return "the other end does not hold this cluster's secret"

    def _step(self, body: bytes) -> bytes:
        if self._server_nonce is None:
            return self._answer_hello(body)
        status, identity, rest = _unpack_identity(self._hear(body, b"server"))
        if status != _Status.WELCOME:
            raise HandshakeError(
                f"node {identity.node_id} belongs to cluster {identity.cluster_id!r}, "
                f"this node to {self._identity.cluster_id!r}"
            )
        expected = KEY_BYTES if self._server_encrypts else 0
        if len(rest) != expected:
            raise HandshakeError(f"a key of {len(rest)} bytes in the server's answer, expected {expected}")
        if _clusters_differ(identity.cluster_id, self._identity.cluster_id):
            raise HandshakeError(f"the server claims cluster {identity.cluster_id!r}")
        self._peer = Peer(self._role, identity.node_id, identity.directory_id, identity.cluster_id)
        if self._server_encrypts:
            self._encrypt(rest, is_client=True)
        else:
            self._tag_only(self._nonce, self._server_nonce, is_client=True)
        return b""

    def _answer_hello(self, body: bytes) -> bytes:
        if body.startswith(REFUSAL):
            said = body[len(REFUSAL) :].decode("utf-8", "replace")
            # The text comes from an unauthenticated peer, and goes to logs and terminals.
            said = "".join(character if character.isprintable() else "?" for character in said)
            raise HandshakeError(f"it refuses this node: {said}")
        if len(body) != _HELLO.size:
            raise HandshakeError(f"hello of {len(body)} bytes, expected {_HELLO.size}")
        magic, version, nonce = _HELLO.unpack(body)
        if magic != MAGIC:
            raise HandshakeError(f"the server does not speak this protocol (magic {magic!r})")
        if version != VERSION:
            raise HandshakeError(f"the server speaks version {version} of the handshake, this node {VERSION}")
        self._server_encrypts = nonce.endswith(_ENCRYPTS)
        if self._security.requires_encryption and not self._server_encrypts:
            raise HandshakeError(
                "the server speaks version 1 of the handshake only, without encryption, which "
                "cluster.link.encryption=required does not allow"
            )
        self._server_nonce = nonce
        self._transcript += body
        if not self._server_encrypts:
            return self._say(_pack_identity(self._role, self._identity) + self._nonce, b"client")
        claim = _pack_identity(self._role | _ASKS_FOR_ENCRYPTION, self._identity)
        return self._say(claim + self._nonce + self._public_key(), b"client")


@dataclass(frozen=True, slots=True)
class _Asked:
    """The content of a client's message in the handshake. `key` is its X25519 public key, empty in version 1."""

    role: Role
    identity: Identity
    nonce: bytes
    key: bytes


def refusal(reason: str) -> bytes:
    """Return the message that a server sends instead of its hello to a client that it refuses."""
    return _message((REFUSAL + reason.encode())[:MAX_MESSAGE_BYTES])


def _message(body: bytes) -> bytes:
    return _LENGTH.pack(len(body)) + body


def _clusters_differ(cluster: str, other: str) -> bool:
    return bool(cluster) and bool(other) and cluster != other


def _pack_identity(first: int, identity: Identity) -> bytes:
    cluster_id = identity.cluster_id.encode()
    return _IDENTITY.pack(first, identity.node_id, identity.directory_id, len(cluster_id)) + cluster_id


def _unpack_identity(body: bytes) -> tuple[int, Identity, bytes]:
    if len(body) < _IDENTITY.size:
        raise HandshakeError(f"identity of {len(body)} bytes is too short")
    first, node_id, directory_id, cluster_id_bytes = _IDENTITY.unpack_from(body)
    end = _IDENTITY.size + cluster_id_bytes
    if len(body) < end:
        raise HandshakeError("the cluster id is cut off")
    try:
        cluster_id = body[_IDENTITY.size : end].decode()
        return first, Identity(node_id, directory_id, cluster_id), body[end:]
    except ValueError as error:
        raise HandshakeError(f"unreadable identity: {error}") from None


def _parse_client(said: bytes) -> _Asked:
    number, identity, rest = _unpack_identity(said)
    encrypts = bool(number & _ASKS_FOR_ENCRYPTION)
    expected = NONCE_BYTES + KEY_BYTES if encrypts else NONCE_BYTES
    if len(rest) != expected:
        raise HandshakeError(
            f"nonce{' and key' if encrypts else ''} of {len(rest)} bytes, expected {expected}"
        )
    try:
        role = Role(number & ~_ASKS_FOR_ENCRYPTION)
    except ValueError:
        raise HandshakeError(
            f"unknown role {number}, known are RAFT (1), BROKER (2) and ADMIN (3), and 0x81 to 0x83 with encryption"
        ) from None
    return _Asked(role, identity, rest[:NONCE_BYTES], rest[NONCE_BYTES:])

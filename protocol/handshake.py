"""The handshake that opens every connection between our own processes.

Both ends prove that they hold the cluster secret, and say who they are, before either believes a byte:

1. server -> client  hello: magic, version, server nonce
2. client -> server  role, node id, directory id, cluster id, client nonce, proof
3. server -> client  status, node id, directory id, cluster id, proof

Each message is ``u16 length | body`` of at most :data:`MAX_MESSAGE_BYTES`. A proof is HMAC-SHA-256 with the
secret over everything said so far, so that it fits this connection only. Frame keys derive from the secret
and both nonces. A server never answers a client whose proof is wrong.

Sans-IO: nonces come in as arguments, bytes go out as values.
"""

from __future__ import annotations

import hmac
import struct
from dataclasses import dataclass
from enum import IntEnum
from hashlib import blake2b, sha256

from .frames import MAX_PAYLOAD_BYTES, Buffer, Channel

MAGIC = b"OTTL"
VERSION = 1
NONCE_BYTES = 32
PROOF_BYTES = 32
DIRECTORY_ID_BYTES = 16
MAX_MESSAGE_BYTES = 512
MAX_CLUSTER_ID_BYTES = 128
MIN_SECRET_BYTES = 16

_LENGTH = struct.Struct(">H")
_HELLO = struct.Struct(f">4sH{NONCE_BYTES}s")
_IDENTITY = struct.Struct(f">Bi{DIRECTORY_ID_BYTES}sB")


class Role(IntEnum):
    """What a connection is for. A server decides by it who serves the connection."""

    RAFT = 1
    BROKER = 2


class _Status(IntEnum):
    WELCOME = 0
    OTHER_CLUSTER = 1


class HandshakeError(Exception):
    """The other end is not one of us. ``reply`` is what to send, if anything, before closing."""

    def __init__(self, reason: str, reply: bytes = b"") -> None:
        super().__init__(reason)
        self.reason = reason
        self.reply = reply


@dataclass(frozen=True, slots=True)
class Identity:
    """Who one end is. ``directory_id`` names the data folder (a broker: its incarnation).

    An empty ``cluster_id`` means that this end has not learned its cluster yet and accepts any that shares
    the secret.
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
class Peer:
    """The other end, as it has proved itself. ``role`` is the connection's, the same at both ends."""

    role: Role
    node_id: int
    directory_id: bytes
    cluster_id: str


class _Handshake:
    def __init__(self, secret: bytes, identity: Identity, nonce: bytes, max_payload_bytes: int) -> None:
        if len(secret) < MIN_SECRET_BYTES:
            raise ValueError(
                f"cluster secret has {len(secret)} bytes, at least {MIN_SECRET_BYTES} are needed"
            )
        if len(nonce) != NONCE_BYTES:
            raise ValueError(f"nonce has {len(nonce)} bytes, it must be {NONCE_BYTES}")
        self._secret = secret
        self._identity = identity
        self._nonce = nonce
        self._max_payload_bytes = max_payload_bytes
        self._buffer = bytearray()
        self._transcript = bytearray()
        self._peer: Peer | None = None
        self._channel: Channel | None = None

    @property
    def done(self) -> bool:
        """Whether both ends have proved themselves; ``peer`` and ``channel`` hold from then on."""
        return self._channel is not None

    @property
    def peer(self) -> Peer:
        """The other end. Raises :class:`RuntimeError` before ``done``."""
        if self._peer is None or self._channel is None:
            raise RuntimeError("the handshake is not done")
        return self._peer

    @property
    def channel(self) -> Channel:
        """The channel to use from here on. Raises :class:`RuntimeError` before ``done``."""
        if self._channel is None:
            raise RuntimeError("the handshake is not done")
        return self._channel

    @property
    def leftover(self) -> bytes:
        """Bytes received behind the handshake: feed them to ``channel`` first."""
        return bytes(self._buffer)

    def receive(self, data: Buffer) -> bytes:
        """Take received bytes; the result, maybe empty, is to be sent. Raises :class:`HandshakeError`."""
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
        """Add ``body`` to the transcript; the message for it, proof included."""
        self._transcript += body
        return _message(body + self._proof(label))

    def _hear(self, body: bytes, label: bytes) -> bytes:
        """The body without its proof, which is checked against the transcript."""
        if len(body) < PROOF_BYTES:
            raise HandshakeError(f"handshake message of {len(body)} bytes is too short")
        said, proof = body[:-PROOF_BYTES], body[-PROOF_BYTES:]
        self._transcript += said
        if not hmac.compare_digest(proof, self._proof(label)):
            raise HandshakeError("the other end does not hold this cluster's secret")
        return said

    def _open_channel(self, client_nonce: bytes, server_nonce: bytes, *, is_client: bool) -> None:
        material = client_nonce + server_nonce
        to_server, to_client, derivation = (
            blake2b(hmac.digest(self._secret, label + material, sha256), digest_size=32).digest()
            for label in (b"client to server", b"server to client", b"derivation")
        )
        sending, receiving = (to_server, to_client) if is_client else (to_client, to_server)
        self._channel = Channel(sending, receiving, derivation, self._max_payload_bytes)


class ServerHandshake(_Handshake):
    """The accepting end. Send :meth:`hello` when the connection opens."""

    def __init__(
        self,
        secret: bytes,
        identity: Identity,
        nonce: bytes,
        max_payload_bytes: int = MAX_PAYLOAD_BYTES,
    ) -> None:
        super().__init__(secret, identity, nonce, max_payload_bytes)
        self._said_hello = False

    def hello(self) -> bytes:
        """The first bytes of the connection."""
        if self._said_hello:
            raise RuntimeError("hello is said once")
        self._said_hello = True
        body = _HELLO.pack(MAGIC, VERSION, self._nonce)
        self._transcript += body
        return _message(body)

    def _step(self, body: bytes) -> bytes:
        said = self._hear(body, b"client")
        role, peer_identity, client_nonce = _parse_client(said)
        if _clusters_differ(peer_identity.cluster_id, self._identity.cluster_id):
            raise HandshakeError(
                f"node {peer_identity.node_id} belongs to cluster {peer_identity.cluster_id!r}, "
                f"this node to {self._identity.cluster_id!r}",
                self._say(_pack_identity(_Status.OTHER_CLUSTER, self._identity), b"server"),
            )
        answer = self._say(_pack_identity(_Status.WELCOME, self._identity), b"server")
        self._peer = Peer(role, peer_identity.node_id, peer_identity.directory_id, peer_identity.cluster_id)
        self._open_channel(client_nonce, self._nonce, is_client=False)
        return answer


class ClientHandshake(_Handshake):
    """The dialling end, which says what the connection is for."""

    def __init__(
        self,
        secret: bytes,
        identity: Identity,
        role: Role,
        nonce: bytes,
        max_payload_bytes: int = MAX_PAYLOAD_BYTES,
    ) -> None:
        super().__init__(secret, identity, nonce, max_payload_bytes)
        self._role = role
        self._server_nonce: bytes | None = None

    def _step(self, body: bytes) -> bytes:
        if self._server_nonce is None:
            return self._answer_hello(body)
        status, identity, rest = _unpack_identity(self._hear(body, b"server"))
        if rest:
            raise HandshakeError(f"{len(rest)} bytes too many in the server's answer")
        if status != _Status.WELCOME:
            raise HandshakeError(
                f"node {identity.node_id} belongs to cluster {identity.cluster_id!r}, "
                f"this node to {self._identity.cluster_id!r}"
            )
        if _clusters_differ(identity.cluster_id, self._identity.cluster_id):
            raise HandshakeError(f"the server claims cluster {identity.cluster_id!r}")
        self._peer = Peer(self._role, identity.node_id, identity.directory_id, identity.cluster_id)
        self._open_channel(self._nonce, self._server_nonce, is_client=True)
        return b""

    def _answer_hello(self, body: bytes) -> bytes:
        if len(body) != _HELLO.size:
            raise HandshakeError(f"hello of {len(body)} bytes, expected {_HELLO.size}")
        magic, version, nonce = _HELLO.unpack(body)
        if magic != MAGIC:
            raise HandshakeError(f"the server does not speak this protocol (magic {magic!r})")
        if version != VERSION:
            raise HandshakeError(f"the server speaks version {version} of the handshake, this node {VERSION}")
        self._server_nonce = nonce
        self._transcript += body
        return self._say(_pack_identity(self._role, self._identity) + self._nonce, b"client")


def _message(body: bytes) -> bytes:
    return _LENGTH.pack(len(body)) + body


def _clusters_differ(one: str, other: str) -> bool:
    return bool(one) and bool(other) and one != other


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


def _parse_client(said: bytes) -> tuple[Role, Identity, bytes]:
    role, identity, nonce = _unpack_identity(said)
    if len(nonce) != NONCE_BYTES:
        raise HandshakeError(f"nonce of {len(nonce)} bytes, expected {NONCE_BYTES}")
    try:
        return Role(role), identity, nonce
    except ValueError:
        raise HandshakeError(f"unknown role {role}, known are RAFT (1) and BROKER (2)") from None

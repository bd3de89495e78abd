"""Valid inputs of clients and files, from which others are made: always the same bytes."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterable
from functools import cache
from hashlib import sha1
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from ottla.protocol.credentials.scram import SCRAM_SHA_256, ScramClient, ScramCredential, ScramServer
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.headers import encode_request
from ottla.protocol.messages.node_authentication import AuthenticateNodeRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from ottla.protocol.records.record import encode_batch
from ottla.protocol.session.handshake import (
    CHANCE_BYTES,
    DIRECTORY_ID_BYTES,
    ClientHandshake,
    Identity,
    LinkSecurity,
    Role,
    ServerHandshake,
)
from ottla.protocol.session.node_proof import (
    INCARNATION_BYTES,
    NONCE_BYTES,
    ClientProof,
    NodeCredentials,
    NodeRole,
    ServerProof,
)
from ottla.protocol.session.node_secrets import Secrets
from ottla.protocol.wire.codec import encode
from ottla.protocol.wire.schema import Message

FOLDER = Path(__file__).parent / "valid"
USER, PASSWORD = "ann,=x", "a secret"
STORE_PASSWORD = "changeit"
SECRET = b"the secret of what is fuzzed: 7261"
CLUSTER_ID = "fuzzed"
NOW_MS = 1_790_000_000_000
FRAME_BYTES_MAX = 4_096
CLIENT_NONCE, SERVER_NONCE = "fyko+d2lbbFgONRv9qkxdawL", "3rfcNHYJY1ZVvWVs7j"
CREDENTIAL = ScramCredential.of_password(SCRAM_SHA_256, PASSWORD, b"salt of the user")
_PIECE = struct.Struct(">H")


def in_pieces(*pieces: bytes) -> bytes:
    """Join several messages into one input."""
    return b"".join(_PIECE.pack(len(piece)) + piece for piece in pieces)


def pieces_of(data: bytes) -> Iterable[bytes]:
    """Yield the messages of an input; a wrong length ends it."""
    at = 0
    while at + _PIECE.size <= len(data):
        (size,) = _PIECE.unpack_from(data, at)
        yield data[at + _PIECE.size : at + _PIECE.size + size]
        at += _PIECE.size + size


@cache
def batch() -> bytes:
    """Return a batch of a few records of an idempotent producer."""
    records = [(b"key", b"value" * number, NOW_MS + number) for number in range(4)]
    return encode_batch(records, producer_id=7, producer_epoch=1, base_sequence=20)


@cache
def produce_requests() -> list[bytes]:
    """Return bodies, each after its version: with one batch and with several."""
    data = PartitionProduceData(index=3, records=batch())
    few = TopicProduceData(name="topic", topic_id=b"i" * 16, partition_data=[data])
    many = TopicProduceData(name="other", topic_id=b"j" * 16, partition_data=[data, data])
    return [
        bytes([version])
        + encode(ProduceRequest(transactional_id=name, acks=-1, timeout_ms=5, topic_data=data), version)
        for version in (3, 8, 9, 13)
        for name, data in ((None, [few]), ("id", [few, many]))
    ]


@cache
def certificate() -> bytes:
    """Return a certificate in DER, whose name has attributes of several types."""
    return (FOLDER / "certificate.der").read_bytes()


@cache
def client_hello() -> bytes:
    """Return the first record of a TLS client."""
    return (FOLDER / "client_hello.bin").read_bytes()


@cache
def key() -> bytes:
    """Return the private key of the certificate, in PKCS#8."""
    made = ec.derive_private_key(0xC0FFEE, ec.SECP256R1())
    return made.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())


@cache
def pem() -> bytes:
    """Return a key store in PEM."""
    made = ec.derive_private_key(0xC0FFEE, ec.SECP256R1())
    private = made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return private + x509.load_der_x509_certificate(certificate()).public_bytes(Encoding.PEM)


def framed(message: Message, version: int) -> bytes:
    return encode_request(message, version, 7, "fuzz")


@cache
def dialogs() -> list[bytes]:
    """Return the frames that clients send to a listener with logins."""
    versions = [
        framed(ApiVersionsRequest(client_software_name="c", client_software_version="1"), n)
        for n in (0, 2, 3, 4)
    ]
    chosen = [framed(SaslHandshakeRequest(mechanism=name), 1) for name in ("PLAIN", SCRAM_SHA_256.name)]
    bare = framed(SaslHandshakeRequest(mechanism="PLAIN"), 0)
    token = b"\0ann\0secret"
    tokens = [framed(SaslAuthenticateRequest(auth_bytes=token), n) for n in (0, 1, 2)]
    scram = [framed(SaslAuthenticateRequest(auth_bytes=text), 2) for text in pieces_of(scram_dialog())]
    proof = framed(AuthenticateNodeRequest(auth_bytes=next(iter(pieces_of(node_proof())))), 0)
    return [
        *(first + chosen[0] + tokens[n % 3] for n, first in enumerate(versions)),
        versions[2] + chosen[1] + b"".join(scram),
        bare + struct.pack(">i", len(token)) + token,
        versions[2] + proof,
        tokens[0],
    ]


@cache
def scram_dialog() -> bytes:
    """Return both messages of a client."""
    return in_pieces(*_scram()[0])


@cache
def scram_answers() -> bytes:
    """Return both messages of a server."""
    return in_pieces(*_scram()[1])


def _scram() -> tuple[list[bytes], list[bytes]]:
    client = ScramClient(SCRAM_SHA_256, USER, PASSWORD, CLIENT_NONCE)
    server = ScramServer(SCRAM_SHA_256, SERVER_NONCE)
    first = client.first()
    server.claim(first)
    challenge = server.challenge(CREDENTIAL)
    final = client.final(challenge)
    return [first, final], [challenge, server.finish(final)]


def claims() -> bytes:
    """Return the header and the claims of an unsigned token."""
    seconds = NOW_MS // 1000
    said = {"sub": "ann", "iss": "x", "aud": ["a"], "iat": seconds, "exp": seconds + 60, "scope": "a b"}
    return in_pieces(b'{"alg":"none"}', json.dumps(said).encode())


def bearer() -> bytes:
    """Return a message of OAUTHBEARER with that token."""
    parts = [base64.urlsafe_b64encode(part).rstrip(b"=") for part in pieces_of(claims())]
    return b"n,a=ann,\x01auth=Bearer " + b".".join(parts) + b".\x01\x01"


def node_credentials(node_id: int) -> NodeCredentials:
    incarnation = bytes([node_id]) * INCARNATION_BYTES
    return NodeCredentials.of(Secrets.parse(SECRET), CLUSTER_ID, node_id, incarnation, NodeRole.BROKER)


@cache
def node_proof() -> bytes:
    """Return both messages of a broker that connects to broker 1."""
    client = ClientProof(node_credentials(2), 1, bytes(NONCE_BYTES))
    server = ServerProof(node_credentials(1), bytes(NONCE_BYTES))
    return in_pieces(client.claim, client.receive(server.receive(client.claim)))


def link_server() -> tuple[ServerHandshake, bytes]:
    """Return a quorum node's end of a link, and its first message."""
    security = LinkSecurity(Secrets.parse(SECRET))
    own = Identity(101, bytes(DIRECTORY_ID_BYTES), CLUSTER_ID)
    server = ServerHandshake(security, own, bytes(CHANCE_BYTES), FRAME_BYTES_MAX)
    return server, server.hello()


@cache
def link_dialogs() -> list[bytes]:
    """Return the messages of brokers and quorum nodes to a quorum node, followed by a frame."""
    found = []
    for role in Role:
        security = LinkSecurity(Secrets.parse(SECRET))
        own = Identity(2, bytes(DIRECTORY_ID_BYTES), CLUSTER_ID)
        client = ClientHandshake(security, own, role, b"\1" * CHANCE_BYTES, FRAME_BYTES_MAX)
        server = ServerHandshake(
            security, Identity(101, bytes(DIRECTORY_ID_BYTES), CLUSTER_ID), bytes(CHANCE_BYTES), 4_096
        )
        said = client.receive(server.hello())
        client.receive(server.receive(said))
        found.append(said + b"".join(bytes(part) for part in client.channel.seal(b"a frame")))
    return found


@cache
def java_stores() -> list[bytes]:
    """Return stores of `keytool` before Java 9: a key with its chain, and trusted certificates."""
    return [_java_store(version) for version in (1, 2)]


def _java_store(version: int) -> bytes:
    kind = _text("X.509") if version > 1 else b""
    cert = kind + _sized(certificate())
    when = bytes(8)
    entries = [
        struct.pack(">i", 1) + _text("own") + when + _sized(_protected()) + struct.pack(">i", 1) + cert,
        struct.pack(">i", 2) + _text("ca") + when + cert,
    ]
    body = b"\xfe\xed\xfe\xed" + struct.pack(">ii", version, len(entries)) + b"".join(entries)
    return body + sha1(STORE_PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + body).digest()


def _text(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()


def _sized(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def _protected() -> bytes:
    """Return the private key under Sun's protector, in the surrounding DER."""
    secret, plain = STORE_PASSWORD.encode("utf-16-be"), key()
    salt = stream = bytes(range(20))
    hidden = bytearray()
    for at in range(0, len(plain), 20):
        stream = sha1(secret + stream).digest()
        hidden += bytes(a ^ b for a, b in zip(plain[at : at + 20], stream, strict=False))
    octets = salt + bytes(hidden) + sha1(secret + plain).digest()
    protector = bytes.fromhex("060a2b060104012a02110101")
    return _der(0x30, _der(0x30, protector + b"\x05\x00") + _der(0x04, octets))


def _der(tag: int, content: bytes) -> bytes:
    size = bytes([len(content)]) if len(content) < 0x80 else b"\x82" + struct.pack(">H", len(content))
    return bytes([tag]) + size + content


JAAS_TEXTS = (
    b'org.apache.kafka.common.security.plain.PlainLoginModule required user_ann="a \\"b\\" c" user_bob=d;',
    b'org.apache.kafka.common.security.scram.ScramLoginModule required;\nX sufficient a=1 b="2";',
)

"""Every reader of unauthenticated peers' data, and of operators' files.

A target plays one input. It may raise its declared refusals, and no other exception. A new reader before authentication
is one more row of `TARGETS`.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import ssl
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

from cryptography import x509

from ottla.dataplane.log.recovery import segment_scan
from ottla.dataplane.log.segments import batch_search, batch_search_in_python
from ottla.dataplane.log.segments.batch_walk import walk_file
from ottla.dataplane.log.storage_errors import BrokenBatch
from ottla.dataplane.security.distinguished_names import name_text, subject_name
from ottla.dataplane.security.oauth.settings import TokenRules
from ottla.dataplane.security.sasl.login import LoginRefused, LoginUndecided
from ottla.dataplane.security.sasl.oauthbearer import BearerLogin, BearerMechanism
from ottla.dataplane.security.sasl.plain import ListedUsers, PlainLogin
from ottla.dataplane.share.leader import key_hashes, key_hashes_in_python
from ottla.network.tls import jks
from ottla.network.tls.contexts import client_context, server_context
from ottla.network.tls.der import object_identifier, values_in
from ottla.network.tls.failures import TlsUnusable
from ottla.network.tls.handshake import reason_of
from ottla.network.tls.settings import StoreSource, TlsRules
from ottla.network.tls.stores import load_key_store, load_trust_store
from ottla.network.tls.stream import TlsStream
from ottla.protocol.credentials.jaas import JaasMalformed, LoginModule, parse_jaas
from ottla.protocol.credentials.scram import SCRAM_SHA_256, ScramClient, ScramRefused, ScramServer
from ottla.protocol.direct_codecs import produce_frames, produce_frames_in_python
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.headers import decode_client_id
from ottla.protocol.messages.node_authentication import AuthenticateNodeRequest
from ottla.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from ottla.protocol.records import produced_batch, record_validation
from ottla.protocol.records.record_batch import ATTRIBUTES_AT, CRC_AT, HEADER_SIZE
from ottla.protocol.session.frames import FrameError
from ottla.protocol.session.handshake import HandshakeError
from ottla.protocol.session.liveness_datagrams import DatagramHeartbeat, DatagramSeal, InvalidDatagram
from ottla.protocol.session.node_proof import NONCE_BYTES, ProofRefused, ServerProof
from ottla.protocol.wire.codec import MalformedMessage, decode
from tests.fuzz import valid_inputs
from tests.fuzz.valid_inputs import STORE_PASSWORD, pieces_of

_KEY_AND_VERSION = struct.Struct(">hh")
_REQUESTS = {
    request.api_key: request
    for request in (
        ApiVersionsRequest,
        SaslHandshakeRequest,
        SaslAuthenticateRequest,
        AuthenticateNodeRequest,
    )
}
_NAME_TAG = 0x30


class FoundFault(AssertionError):
    """An input that was not refused in the declared manner. The text says how to play it again."""


@dataclass(frozen=True)
class Target:
    """A reader, the valid inputs from which others are made, and its refusals."""

    name: str
    valid: Callable[[], Sequence[bytes]]
    play: Callable[[bytes], None]
    refusals: tuple[type[Exception], ...]
    weight: int = 10
    """Weight of its share of all inputs, relative to other targets."""


def _requests() -> list[bytes]:
    """Return the frames of all dialogs, without their sizes."""
    found = []
    for dialog in valid_inputs.dialogs():
        at = 0
        while at < len(dialog):
            (size,) = struct.unpack_from(">i", dialog, at)
            found.append(dialog[at + 4 : at + 4 + size])
            at += 4 + size
    return [frame for frame in found if len(frame) >= 8]


def play_request(data: bytes) -> None:
    """Play a frame of a client that has not logged in."""
    if len(data) < 8:
        return
    api_key, version = _KEY_AND_VERSION.unpack_from(data)
    request_class = _REQUESTS.get(api_key)
    if request_class is None or not 0 <= version <= request_class.max_version:
        return
    _, offset = decode_client_id(memoryview(data), api_key, version)
    decode(request_class, data, version, offset)


def play_scram_server(data: bytes) -> None:
    """Play the messages of a client's SCRAM login."""
    server = ScramServer(SCRAM_SHA_256, valid_inputs.SERVER_NONCE)
    for message in pieces_of(data):
        if server.user is None:
            server.claim(message)
            server.challenge(valid_inputs.CREDENTIAL)
        else:
            server.finish(message)
    assert not server.done or data == valid_inputs.scram_dialog() or _has_right_proof(data)


def _has_right_proof(data: bytes) -> bool:
    """Return whether the messages are the valid ones, apart from permitted additions after them, or before the nonce as
    with librdkafka.
    """
    first, final = list(pieces_of(valid_inputs.scram_dialog()))
    said = list(pieces_of(data))
    return said[0] == first and said[1].rpartition(b",p=")[0].endswith(final.rpartition(b",p=")[0][-40:])


def play_scram_client(data: bytes) -> None:
    """Play a server's answers to Ottla's client."""
    client = ScramClient(SCRAM_SHA_256, valid_inputs.USER, valid_inputs.PASSWORD, valid_inputs.CLIENT_NONCE)
    client.first()
    for number, message in enumerate(pieces_of(data)):
        if number % 2:
            client.check(message)
        elif b"i=4096" in message:  # what takes longer is bounded by ITERATIONS_MAX, and takes the time
            client.final(message)


@cache
def _users() -> ListedUsers:
    return ListedUsers(LoginModule("PlainLoginModule", "required", {"user_ann": "secret"}))


def play_plain(data: bytes) -> None:
    """Play the one message of PLAIN."""
    login = PlainLogin(_users().check)
    try:
        login.receive(data).send(None)
    except StopIteration:
        assert login.outcome is not None


def play_bearer(data: bytes) -> None:
    """Play a message of OAUTHBEARER with an unsigned token."""
    login = BearerMechanism(TokenRules(), None, lambda: valid_inputs.NOW_MS).begin()
    try:
        login.receive(data).send(None)
    except StopIteration:
        assert login.outcome is not None or json.loads(_told(login))["status"]


def _told(login: BearerLogin) -> str:
    """Return the final error message for the client of a refused token."""
    try:
        login.receive(b"\x01").send(None)
    except LoginRefused as error:
        return error.told or ""
    return ""


def play_claims(data: bytes) -> None:
    """Play the JSON in a token: its header and its claims."""
    token = ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in pieces_of(data))
    play_bearer(f"n,,\x01auth=Bearer {token}.\x01\x01".encode())


def play_jaas(data: bytes) -> None:
    """Play a text of `sasl.jaas.config`."""
    for module in parse_jaas(data.decode("utf-8", "surrogateescape")):
        assert module.class_name


def play_java_store(data: bytes) -> None:
    """Play a Java key store, with the password and without."""
    store = jks.read(data, None)
    for entry in store.keys.values():
        jks.unprotected(entry, STORE_PASSWORD)
    jks.read(data, STORE_PASSWORD)


def play_der(data: bytes) -> None:
    """Play DER to the depth of Ottla's readers, and the subject of a certificate."""
    pending, seen = [data], 0
    while pending and seen < 200:
        for value in values_in(pending.pop()):
            seen += 1
            if value.tag == 0x06:
                object_identifier(value.content)
            elif value.tag & 0x20:
                pending.append(value.content)
    subject_name(data)


def play_name(data: bytes) -> None:
    """Play the name in a certificate."""
    for value in values_in(data):
        name_text(value.content)


def play_trusted(data: bytes) -> None:
    """Play a trust store in PEM."""
    text = data.decode("utf-8", "surrogateescape")
    client_context(TlsRules(), None, load_trust_store(StoreSource("ssl.truststore", certificates=text)))


def play_keys(data: bytes) -> None:
    """Play a key store in PEM."""
    text = data.decode("utf-8", "surrogateescape")
    load_key_store(StoreSource("ssl.keystore", certificates=text, key=text, key_option="ssl.keystore.key"))


@cache
def _accepting() -> ssl.SSLContext:
    text = valid_inputs.pem().decode()
    return server_context(TlsRules(), load_key_store(StoreSource("x", certificates=text, key=text)), None)


def play_tls(data: bytes) -> None:
    """Play TLS records of a client, and the log's text about them."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        theirs.send(data)
        theirs.shutdown(socket.SHUT_WR)
        stream = TlsStream(ours, _accepting())
        try:
            while not stream.step():
                pass
        except ssl.SSLError as error:
            if not reason_of(error):
                raise FoundFault(f"no words for {error!r}") from error
            raise


def play_node_proof(data: bytes) -> None:
    """Play the messages of a peer that connects as a broker."""
    proof = ServerProof(valid_inputs.node_credentials(1), bytes(NONCE_BYTES))
    for message in pieces_of(data):
        proof.receive(message)


def play_link(data: bytes) -> None:
    """Play the messages of a peer that connects to a quorum node, and the frames after them."""
    server, _ = valid_inputs.link_server()
    server.receive(data)
    if server.done:
        server.channel.feed(server.leftover)


def _datagrams() -> list[bytes]:
    seal = DatagramSeal(b"k" * 32, is_broker=True)
    return [seal.encode(DatagramHeartbeat(1, 2, b"i" * 16, counter, 5, 100, 0)) for counter in (1, 2)]


def play_datagram(data: bytes) -> None:
    """Play a datagram to the port of a quorum node."""
    DatagramSeal(b"k" * 32, is_broker=False).decode(data)


def _names() -> list[bytes]:
    subject = x509.load_der_x509_certificate(valid_inputs.certificate()).subject.public_bytes()
    assert subject[0] == _NAME_TAG
    return [subject]


def play_produce(data: bytes) -> None:
    """Play a version and a Produce request, as on a listener without logins: in C as in Python, with each batch."""
    if not data:
        return
    version, view = data[0] % 16, memoryview(data)
    read = produce_frames.read_produce(view, 1, version)
    reference = produce_frames_in_python.read_produce(view, 1, version)
    assert read in (reference, None), "only a tagged field may be refused by one and not by the other"
    for _, _, records in () if reference is None else reference[3]:
        play_batch(bytes(records))


def play_batch(data: bytes) -> None:
    """Play a batch of records with a right CRC, or one that would be right."""
    crc = int.from_bytes(data[CRC_AT:ATTRIBUTES_AT], "big")
    batch = bytearray(data)
    assert _found(produced_batch.find_sole, batch, crc) == _found(record_validation.sole_batch, batch, crc)


def _found(find: Callable[..., object], batch: bytearray, crc: int) -> object:
    return find(memoryview(batch), crc, valid_inputs.NOW_MS - 10, valid_inputs.NOW_MS + 10, True)


def play_segment(data: bytes) -> None:
    """Play the file of a segment: in C as in Python."""
    fd = os.memfd_create("segment")
    try:
        os.write(fd, data)
        for limit in (len(data) // 2, len(data)):
            where = fd, 0, limit, len(data), 0
            assert _boundary(batch_search.last_boundary, *where) == _boundary(
                batch_search_in_python.last_boundary, *where
            )
        if segment_scan.skim is not None:
            epoch = int.from_bytes(data[12:16].ljust(4), signed=True)
            state = segment_scan.skim(fd, 0, len(data), 0, 0, 2**31, epoch, 0, 4096, 0, -1, 0, -1)
            assert state[0] in _ends(fd, len(data))
    finally:
        os.close(fd)


def play_keys_of_records(data: bytes) -> None:
    """Play the body of a batch whose keys are hashed, in pieces that end anywhere: in C as in Python."""
    middle = len(data) // 2
    for piece in (data, data[:middle], data[middle:]):
        assert _hashed(key_hashes.hash_keys, piece) == _hashed(key_hashes_in_python.hash_keys, piece)


def _hashed(hash_keys: Callable[..., tuple[object, ...]], piece: bytes) -> tuple[object, ...] | str:
    try:
        return hash_keys(piece, 7, 8, 3, 2)
    except ValueError as error:
        return str(error)


def _ends(fd: int, size: int) -> list[int]:
    """Return the positions between the batches that a walk in Python finds, from the first one to its end."""
    ends = [0]
    with suppress(BrokenBatch):
        for position, header in walk_file(fd, 0, size, next_offset=0):
            ends.append(position + header.size)
    return ends


def _boundary(search: Callable[..., tuple[int, int]], *where: int) -> tuple[int, int] | str:
    try:
        return search(*where)
    except BrokenBatch as broken:
        return str(broken)


TARGETS: tuple[Target, ...] = (
    Target("requests", _requests, play_request, (MalformedMessage,), 20),
    Target("scram-server", lambda: [valid_inputs.scram_dialog()], play_scram_server, (ScramRefused,), 20),
    Target("scram-client", lambda: [valid_inputs.scram_answers()], play_scram_client, (ScramRefused,), 2),
    Target("plain", lambda: [b"\0ann\0secret", b"ann\0ann\0secret"], play_plain, (LoginRefused,)),
    Target("bearer", lambda: [valid_inputs.bearer()], play_bearer, (LoginRefused, LoginUndecided)),
    Target("claims", lambda: [valid_inputs.claims()], play_claims, (LoginRefused, LoginUndecided)),
    Target("jaas", lambda: valid_inputs.JAAS_TEXTS, play_jaas, (JaasMalformed,)),
    Target("jks", valid_inputs.java_stores, play_java_store, (ValueError,)),
    Target("der", lambda: [valid_inputs.certificate()], play_der, (ValueError,)),
    Target("names", _names, play_name, (ValueError,)),
    Target("pem-keys", lambda: [valid_inputs.pem()], play_keys, (TlsUnusable,), 2),
    Target("pem-trusted", lambda: [valid_inputs.pem()], play_trusted, (TlsUnusable,), 1),
    Target("tls", lambda: [valid_inputs.client_hello()], play_tls, (ssl.SSLError,)),
    Target("node-proof", lambda: [valid_inputs.node_proof()], play_node_proof, (ProofRefused,)),
    Target("links", valid_inputs.link_dialogs, play_link, (HandshakeError, FrameError), 5),
    Target("datagrams", _datagrams, play_datagram, (InvalidDatagram,)),
    Target("produce", valid_inputs.produce_requests, play_produce, ()),
    Target("batches", lambda: [valid_inputs.batch()], play_batch, ()),
    Target("keys of records", lambda: [valid_inputs.batch()[HEADER_SIZE:]], play_keys_of_records, ()),
    Target("segments", lambda: [valid_inputs.batch() * 3], play_segment, ()),
)

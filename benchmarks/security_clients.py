"""Bare socket clients of `benchmarks.security`. As a program it opens connections for some seconds.

    python -m benchmarks.security_clients full|resumed|logins HOST:PORT CA_FILE SECONDS

Each connection is closed after its first answer, or its login. The output is JSON: the number of connections, and how
many of them resumed a TLS session.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import socket
import ssl
import struct
import sys
import time
from typing import Any

from ottla.protocol.credentials.scram import SCRAM_SHA_256, salted_password
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.headers import decode_response, encode_request
from ottla.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from ottla.protocol.wire.schema import Message, Request

from .secured_clusters import MECHANISM, PASSWORD, USER

TIMEOUT_S = 30.0


class Peer:
    """A connection that sends one request at a time."""

    def __init__(
        self,
        address: str,
        context: ssl.SSLContext | None = None,
        session: ssl.SSLSession | None = None,
        source: str = "",
    ) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), TIMEOUT_S, (source, 0))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is not None:
            self._socket = context.wrap_socket(self._socket, server_hostname=host, session=session)

    @property
    def session(self) -> ssl.SSLSession | None:
        """TLS session for the next connection to resume; None without TLS."""
        return self._socket.session if isinstance(self._socket, ssl.SSLSocket) else None

    @property
    def has_resumed(self) -> bool:
        return isinstance(self._socket, ssl.SSLSocket) and bool(self._socket.session_reused)

    def ask(self, message: Message, version: int) -> Any:
        """Send a request, and return its answer."""
        self.send(encode_request(message, version, 1, "benchmark"))
        assert isinstance(message, Request)
        return decode_response(type(message), self.receive(), version)[1]

    def first_answer(self) -> None:
        """Ask for versions, as every client does first."""
        self.send(encode_request(ApiVersionsRequest(), 0, 1, "benchmark"))
        self.receive()

    def send(self, frame: bytes) -> None:
        """Send a whole request."""
        self._socket.sendall(frame)

    def receive(self) -> bytearray:
        """Return the next answer, without its size."""
        return self._read(struct.unpack(">i", self._read(4))[0])

    def close(self) -> None:
        self._socket.close()

    def _read(self, size: int) -> bytearray:
        data, at = bytearray(size), 0
        space = memoryview(data)
        while at < size:
            received = self._socket.recv_into(space[at:])
            if not received:
                raise ConnectionResetError("hung up")
            at += received
        return data


class ScramLogins:
    """SCRAM-SHA-256 logins that hash the password only once, so that the broker's cost of a login is measured."""

    def __init__(self) -> None:
        self._salted: dict[bytes, bytes] = {}

    def log_in(self, peer: Peer) -> None:
        """Log in over a new connection. Raises RuntimeError if the login is refused."""
        peer.ask(SaslHandshakeRequest(mechanism=MECHANISM), 1)
        nonce = base64.b64encode(os.urandom(18)).decode()
        first_bare = f"n={USER},r={nonce}"
        challenge: str = self._step(peer, f"n,,{first_bare}").decode()
        attributes = dict(part.split("=", 1) for part in challenge.split(","))
        salt = base64.b64decode(attributes["s"])
        if salt not in self._salted:
            self._salted[salt] = salted_password(SCRAM_SHA_256, PASSWORD, salt, int(attributes["i"]))
        without_proof = f"c={base64.b64encode(b'n,,').decode()},r={attributes['r']}"
        client_key = SCRAM_SHA_256.hmac(self._salted[salt], b"Client Key")
        said = f"{first_bare},{challenge},{without_proof}".encode()
        signature = SCRAM_SHA_256.hmac(hashlib.sha256(client_key).digest(), said)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._step(peer, f"{without_proof},p={base64.b64encode(proof).decode()}")

    def _step(self, peer: Peer, text: str) -> bytes:
        answer = peer.ask(SaslAuthenticateRequest(auth_bytes=text.encode()), 1)
        if answer.error_code:
            raise RuntimeError(f"the login failed: {answer.error_message}")
        return bytes(answer.auth_bytes)


def trusting(ca_file: str) -> ssl.SSLContext:
    """Return a client's TLS context."""
    return ssl.create_default_context(cafile=ca_file)


def connect_again_and_again(kind: str, address: str, ca_file: str, seconds: float) -> dict[str, int]:
    """Open one connection after the other; return their number, and how many have resumed a session."""
    context = None if kind == "logins" else trusting(ca_file)
    logins, session = ScramLogins(), None
    count = resumed = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        peer = Peer(address, context, session)
        if kind == "logins":
            logins.log_in(peer)
        else:
            peer.first_answer()
        resumed += peer.has_resumed
        if kind == "resumed":
            session = peer.session
        peer.close()
        count += 1
    return {"count": count, "resumed": resumed}


if __name__ == "__main__":
    KIND, ADDRESS, CA_FILE, SECONDS = sys.argv[1:]
    print(json.dumps(connect_again_and_again(KIND, ADDRESS, CA_FILE, float(SECONDS))))

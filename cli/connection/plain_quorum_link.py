"""A blocking connection to a quorum node, for commands that hold the cluster's secret."""

from __future__ import annotations

import os
import socket
import ssl
from types import TracebackType
from typing import Self

from ...network.tls.nodes import CLOSED_EARLY, NodeRefused, NodeTls, tls_problem
from ...protocol.messages.quorum_session import (
    SessionMessage,
    decode_session_message,
    encode_session_message,
)
from ...protocol.session.handshake import (
    CHANCE_BYTES,
    DIRECTORY_ID_BYTES,
    ClientHandshake,
    HandshakeError,
    Identity,
    LinkSecurity,
    Role,
)

_ANOTHER_SECRET = "it closed the connection: it has another secret (cluster.secret.file), or an older version"
NOBODY = -1
"""The node id that a client other than a node sends."""


class PlainQuorumLink:
    """A blocking, authenticated connection to a quorum node over a plain socket.

    Methods raise OSError, HandshakeError and FrameError, and MalformedMessage for an unknown message.
    """

    def __init__(
        self,
        address: tuple[str, int],
        security: LinkSecurity,
        cluster_id: str,
        role: Role,
        timeout_s: float,
        tls: NodeTls | None = None,
    ) -> None:
        """Connect to the quorum node and authenticate with the secret in `security`."""
        identity = Identity(NOBODY, os.urandom(DIRECTORY_ID_BYTES), cluster_id)
        handshake = ClientHandshake(security, identity, role, os.urandom(CHANCE_BYTES))
        self._socket = socket.create_connection(address, timeout_s)
        try:
            if tls is not None:
                self._begin_tls(address[0], tls)
            refusal = _ANOTHER_SECRET if tls is None else CLOSED_EARLY
            while not handshake.done:
                self._socket.sendall(handshake.receive(self._in_handshake(refusal)))
                refusal = _ANOTHER_SECRET
        except BaseException:
            self._socket.close()
            raise
        self._channel = handshake.channel
        self._received = self._channel.feed(handshake.leftover)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def send(self, message: SessionMessage) -> None:
        """Send a message."""
        self._socket.sendall(b"".join(self._channel.seal(encode_session_message(message))))

    def receive(self) -> SessionMessage:
        """Wait for the next message of the quorum node and return it."""
        while not self._received:
            self._received = self._channel.feed(self._some())
        return decode_session_message(self._received.pop(0))

    def _begin_tls(self, host: str, tls: NodeTls) -> None:
        """Wrap the socket in TLS and check the quorum node's certificate. Raises ConnectionError and HandshakeError."""
        try:
            wrapped = tls.dialling.wrap_socket(self._socket, server_hostname=host)
        except OSError as error:
            raise ConnectionError(tls_problem(error)) from None
        self._socket = wrapped
        try:
            tls.check_peer(wrapped.getpeercert(binary_form=True))
        except NodeRefused as error:
            raise HandshakeError(f"it is refused: {error}") from None

    def _in_handshake(self, refusal: str) -> bytes:
        """Return the next bytes of the quorum node during the handshake.

        Raises HandshakeError with `refusal` if the node closes the connection.
        """
        try:
            return self._some()
        except ConnectionError:
            raise HandshakeError(refusal) from None

    def _some(self) -> bytes:
        try:
            data = self._socket.recv(65536)
        except ssl.SSLError as error:
            raise HandshakeError(tls_problem(error)) from None
        if not data:
            raise ConnectionError("the quorum node closed the connection")
        return data

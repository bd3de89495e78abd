"""A client on a plain socket. It sends any message in any version, one request at a time."""

from __future__ import annotations

import socket
import struct
from typing import Any

from ottla.protocol.messages.headers import decode_response, encode_request
from ottla.protocol.wire.schema import Message, Request

ANSWER_TIMEOUT_S = 60.0


class Peer:
    """A connection that sends one request at a time."""

    def __init__(self, port: int, client_id: str = "test", source: str = "127.0.0.1") -> None:
        self._client_id = client_id
        self._socket = socket.create_connection(("127.0.0.1", port), ANSWER_TIMEOUT_S, (source, 0))

    def close(self) -> None:
        self._socket.close()

    def ask(self, message: Message, version: int, timeout_s: float = ANSWER_TIMEOUT_S) -> Any:
        """Send a request and return the answer.

        Raises TimeoutError without an answer, ConnectionError if the peer hangs up.
        """
        self.send(message, version)
        return self.receive(message, version, timeout_s)

    def send(self, message: Message, version: int) -> None:
        """Send a request; `receive` gets its answer."""
        self._socket.sendall(encode_request(message, version, 7, self._client_id))

    def send_together(self, *requests: tuple[Message, int]) -> None:
        """Send requests in one piece.

        When the first answer arrives, the broker has handled all requests that do not wait.
        """
        self._socket.sendall(
            b"".join(encode_request(message, version, 7, self._client_id) for message, version in requests)
        )

    def receive(self, message: Message, version: int, timeout_s: float = ANSWER_TIMEOUT_S) -> Any:
        """Return the answer to a sent request. Raises the errors of `ask`."""
        self._socket.settimeout(timeout_s)
        (size,) = struct.unpack(">i", self._read(4))
        assert isinstance(message, Request)
        return decode_response(type(message), self._read(size), version)[1]

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            received = self._socket.recv(size - len(data))
            if not received:
                raise ConnectionResetError("hung up")
            data += received
        return bytes(data)

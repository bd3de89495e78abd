"""A producer with one connection to one broker, leader or not, for requests that stock clients would not send."""

from __future__ import annotations

import socket
import struct

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.headers import decode_response, encode_request
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.records.record import encode_batch

VERSION = 9


class RawProducer:
    """A producer that writes one record per request to partition 0 of a topic, and reads answers on request."""

    def __init__(self, port: int, topic: str, acks: int, host: str = "127.0.0.1") -> None:
        self._topic = topic
        self._acks = acks
        self._socket = socket.create_connection((host, port), 5)
        self._socket.settimeout(30)
        self._stream = self._socket.makefile("rb")

    def send(self, value: bytes) -> None:
        """Send without waiting."""
        data = PartitionProduceData(
            index=0, records=bytes(encode_batch([(b"raw", value, 1_700_000_000_000)]))
        )
        message = ProduceRequest(
            acks=self._acks,
            timeout_ms=8_000,
            topic_data=[TopicProduceData(name=self._topic, partition_data=[data])],
        )
        self._socket.sendall(encode_request(message, VERSION, 1, "raw"))

    def answer(self) -> tuple[ErrorCode, int, str]:
        """Return the next answer: error, offset, and the broker's message."""
        (size,) = struct.unpack(">i", self._stream.read(4))
        _, response = decode_response(ProduceRequest, self._stream.read(size), VERSION)
        answer = response.responses[0].partition_responses[0]
        return ErrorCode(answer.error_code), answer.base_offset, answer.error_message or ""

    def ask(self, value: bytes) -> tuple[ErrorCode, int, str]:
        """Send and wait for the answer."""
        self.send(value)
        return self.answer()

    def close(self) -> None:
        """Hang up."""
        self._stream.close()
        self._socket.close()

"""Frames between our own processes: length-prefixed payloads, each with an authentication tag.

A frame is `u32 length | payload | 16-byte tag`, big-endian. The tag is keyed BLAKE2b over the frame's
number in its direction, its length and its payload, so a frame that is altered, repeated, reordered or
reflected is refused. The keys come from `handshake`; frames are authenticated, not encrypted.

Sans-IO: a `Channel` turns payloads into buffers and received bytes into payloads.
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Sequence
from hashlib import blake2b

TAG_BYTES = 16
HEADER_BYTES = 4
MAX_PAYLOAD_BYTES = 64 << 20

_LENGTH = struct.Struct(">I")
_NUMBER_AND_LENGTH = struct.Struct(">QI")

Buffer = bytes | bytearray | memoryview


class FrameError(Exception):
    """The byte stream cannot be trusted any more: close the connection."""


class Channel:
    """One authenticated connection after its handshake.

    `sending_key` and `receiving_key` differ, so that no frame can be played back to its sender.
    `max_payload_bytes` bounds a payload in both directions; memory grows only with bytes that arrived.
    """

    __slots__ = (
        "_buffer",
        "_derivation_key",
        "_max_payload_bytes",
        "_received",
        "_receiving_key",
        "_sending_key",
        "_sent",
    )

    def __init__(
        self,
        sending_key: bytes,
        receiving_key: bytes,
        derivation_key: bytes,
        max_payload_bytes: int = MAX_PAYLOAD_BYTES,
    ) -> None:
        self._sending_key = sending_key
        self._receiving_key = receiving_key
        self._derivation_key = derivation_key
        self._max_payload_bytes = max_payload_bytes
        self._sent = 0
        self._received = 0
        self._buffer = bytearray()

    def derive(self, label: bytes) -> bytes:
        """A 32-byte key both ends of this connection share, for another use such as its datagrams."""
        return blake2b(label, digest_size=32, key=self._derivation_key).digest()

    def seal(self, *parts: Buffer) -> list[Buffer]:
        """The buffers to write for one payload, given whole or as parts; parts are not copied.

        Raises FrameError for a payload over the limit.
        """
        length = sum(map(len, parts))
        if length > self._max_payload_bytes:
            raise FrameError(f"payload of {length} bytes, at most {self._max_payload_bytes} are allowed")
        tag = _tag(self._sending_key, self._sent, length, parts)
        self._sent += 1
        return [_LENGTH.pack(length), *parts, tag]

    def feed(self, data: Buffer) -> list[bytes]:
        """The payloads that `data` completes, in order. Raises FrameError; then close."""
        buffer = self._buffer
        buffer += data
        payloads: list[bytes] = []
        position = 0
        available = len(buffer)
        with memoryview(buffer) as view:
            while available - position >= HEADER_BYTES:
                (length,) = _LENGTH.unpack_from(view, position)
                if length > self._max_payload_bytes:
                    raise FrameError(
                        f"frame of {length} bytes, at most {self._max_payload_bytes} are allowed"
                    )
                end = position + HEADER_BYTES + length
                if available < end + TAG_BYTES:
                    break
                payload = bytes(view[position + HEADER_BYTES : end])
                expected = _tag(self._receiving_key, self._received, length, (payload,))
                if not hmac.compare_digest(expected, view[end : end + TAG_BYTES]):
                    raise FrameError(f"frame {self._received} has a wrong authentication tag")
                self._received += 1
                payloads.append(payload)
                position = end + TAG_BYTES
        if position:
            del buffer[:position]
        return payloads


def _tag(key: bytes, number: int, length: int, parts: Sequence[Buffer]) -> bytes:
    digest = blake2b(_NUMBER_AND_LENGTH.pack(number, length), digest_size=TAG_BYTES, key=key)
    for part in parts:
        digest.update(part)
    return digest.digest()

"""Frames between the nodes of a cluster: length-prefixed payloads, each protected by keys of one connection alone.

A frame is `u32 length | payload | 16-byte tag`, big-endian. The keys come from `handshake`, whose version
decides between two kinds:

- Encrypted: the payload is AES-256-GCM ciphertext. The nonce is the frame's number in its direction.
- Tagged, with nodes of older versions: the payload is clear. The tag is keyed BLAKE2b over number, length and payload.

Both kinds refuse a frame that was altered, repeated, reordered or reflected.

Sans-IO: a `Channel` turns payloads into buffers and received bytes into payloads.
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Sequence
from hashlib import blake2b, sha256

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

TAG_BYTES = 16
HEADER_BYTES = 4
MAX_PAYLOAD_BYTES = 64 << 20
FRAMES_PER_KEY = 1 << 24
"""Number of frames of one direction after which both ends take the next key, far below the limit of AES-GCM for one
key."""

_LENGTH = struct.Struct(">I")
_NUMBER_AND_LENGTH = struct.Struct(">QI")
_NONCE_BYTES = 12

Buffer = bytes | bytearray | memoryview


class FrameError(Exception):
    """A frame that is not authentic or too long, so that the byte stream cannot be trusted any more. The connection
    must be closed."""


class Channel:
    """A protected channel between two nodes after their handshake, which turns payloads into frames and frames into
    payloads. `EncryptedChannel` and `TaggedChannel` implement it.

    `max_payload_bytes` limits a payload in both directions. Memory grows only with bytes that have arrived.
    """

    __slots__ = ("_buffer", "_derivation_key", "_max_payload_bytes")

    def __init__(self, derivation_key: bytes, max_payload_bytes: int) -> None:
        self._derivation_key = derivation_key
        self._max_payload_bytes = max_payload_bytes
        self._buffer = bytearray()

    def derive(self, label: bytes) -> bytes:
        """Return a 32-byte key that both ends of this connection share, for another use such as its datagrams."""
        return blake2b(label, digest_size=32, key=self._derivation_key).digest()

    def seal(self, *parts: Buffer) -> list[Buffer]:
        """Return the buffers to write for one payload, given whole or as parts.

        Raises FrameError for a payload over the limit.
        """
        length = sum(map(len, parts))
        if length > self._max_payload_bytes:
            raise FrameError(f"payload of {length} bytes, at most {self._max_payload_bytes} are allowed")
        return [_LENGTH.pack(length), *self._protected(parts, length)]

    def feed(self, data: Buffer) -> list[bytes]:
        """Return the payloads that `data` completes, in order. Raises FrameError; then the caller must close the
        connection."""
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
                end = position + HEADER_BYTES + length + TAG_BYTES
                if available < end:
                    break
                payloads.append(self._opened(view[position + HEADER_BYTES : end]))
                position = end
        if position:
            del buffer[:position]
        return payloads

    def _protected(self, parts: Sequence[Buffer], length: int) -> Sequence[Buffer]:
        """Return the protected parts of the next frame, without its length and with its tag."""
        raise NotImplementedError

    def _opened(self, protected: memoryview) -> bytes:
        """Return the payload of the next frame. Raises FrameError if it is not authentic."""
        raise NotImplementedError


class EncryptedChannel(Channel):
    """A channel whose frames no third party can read or change.

    `sending_key` and `receiving_key` differ, so that no frame can be replayed to its sender.
    """

    __slots__ = ("_receiving", "_sending")

    def __init__(
        self,
        sending_key: bytes,
        receiving_key: bytes,
        derivation_key: bytes,
        max_payload_bytes: int = MAX_PAYLOAD_BYTES,
        *,
        frames_per_key: int = FRAMES_PER_KEY,
    ) -> None:
        super().__init__(derivation_key, max_payload_bytes)
        self._sending = _Direction(sending_key, frames_per_key)
        self._receiving = _Direction(receiving_key, frames_per_key)

    def _protected(self, parts: Sequence[Buffer], length: int) -> Sequence[Buffer]:
        cipher, nonce = self._sending.next()
        return (cipher.encrypt(nonce, parts[0] if len(parts) == 1 else b"".join(parts), None),)

    def _opened(self, protected: memoryview) -> bytes:
        cipher, nonce = self._receiving.next()
        try:
            return cipher.decrypt(nonce, protected, None)
        except InvalidTag:
            raise _wrong_tag(self._receiving.frames - 1) from None


class TaggedChannel(Channel):
    """A channel whose frames no third party can change, but anyone on the path can read. The keys of the two directions
    differ."""

    __slots__ = ("_received", "_receiving_key", "_sending_key", "_sent")

    def __init__(
        self,
        sending_key: bytes,
        receiving_key: bytes,
        derivation_key: bytes,
        max_payload_bytes: int = MAX_PAYLOAD_BYTES,
    ) -> None:
        super().__init__(derivation_key, max_payload_bytes)
        self._sending_key = sending_key
        self._receiving_key = receiving_key
        self._sent = 0
        self._received = 0

    def _protected(self, parts: Sequence[Buffer], length: int) -> Sequence[Buffer]:
        tag = _tag(self._sending_key, self._sent, length, parts)
        self._sent += 1
        return (*parts, tag)

    def _opened(self, protected: memoryview) -> bytes:
        payload = bytes(protected[:-TAG_BYTES])
        expected = _tag(self._receiving_key, self._received, len(payload), (payload,))
        if not hmac.compare_digest(expected, protected[-TAG_BYTES:]):
            raise _wrong_tag(self._received)
        self._received += 1
        return payload


class _Direction:
    """The cipher for the frames of one direction. Each frame number is used once as nonce, and the key is replaced
    before it has protected too many frames."""

    __slots__ = ("_cipher", "_frames_per_key", "_key", "frames")

    def __init__(self, key: bytes, frames_per_key: int) -> None:
        self._key = key
        self._cipher = AESGCM(key)
        self._frames_per_key = frames_per_key
        self.frames = 0
        """Number of frames so far, under all keys."""

    def next(self) -> tuple[AESGCM, bytes]:
        """Return the cipher and the nonce of the next frame."""
        if self.frames and self.frames % self._frames_per_key == 0:
            self._key = hmac.digest(self._key, b"next key", sha256)
            self._cipher = AESGCM(self._key)
        nonce = self.frames.to_bytes(_NONCE_BYTES, "big")
        self.frames += 1
        return self._cipher, nonce


def _wrong_tag(number: int) -> FrameError:
    return FrameError(f"frame {number} has a wrong authentication tag")


def _tag(key: bytes, number: int, length: int, parts: Sequence[Buffer]) -> bytes:
    digest = blake2b(_NUMBER_AND_LENGTH.pack(number, length), digest_size=TAG_BYTES, key=key)
    for part in parts:
        digest.update(part)
    return digest.digest()

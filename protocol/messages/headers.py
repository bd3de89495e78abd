"""Headers of requests and responses, and whole frames that consist of a header and a body."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple, TypeVar

from ..wire.codec import HoleBuffer, decode, encode_into
from ..wire.primitives import Buffer, MalformedMessage, tagged_sections
from ..wire.schema import Message, Request

_R = TypeVar("_R", bound=Message)

API_VERSIONS: Final = 18
APART_BYTES: Final = 16 * 1024
"""Records of at least this many bytes are written as a separate piece; smaller ones are copied together."""

# First version of each API whose headers end in tagged fields; a test compares the table with the schemas. A request of
# an API that is missing here is still decoded up to its client id, so that the broker can answer it.
FIRST_FLEXIBLE: Final = {
    0: 9, 1: 12, 2: 6, 3: 9, 8: 8, 9: 6, 10: 3, 11: 6, 12: 4, 13: 4, 14: 4, 15: 5, 16: 3, 18: 3, 19: 5, 20: 4,
    21: 2, 22: 2, 23: 4, 24: 3, 25: 3, 26: 3, 27: 1, 28: 3, 29: 2, 30: 2, 31: 2, 32: 4, 33: 2, 34: 2, 35: 2,
    36: 2, 37: 2, 38: 2, 39: 2, 40: 2, 41: 2, 42: 2, 43: 2, 44: 1, 45: 0, 46: 0, 48: 1, 49: 1, 50: 0, 51: 0,
    55: 0, 57: 0, 60: 0, 61: 0, 64: 0, 65: 0, 66: 0, 68: 0, 69: 0, 71: 0, 72: 0, 74: 0, 75: 0, 76: 0, 77: 0,
    78: 0, 79: 0, 83: 0, 84: 0, 85: 0, 86: 0, 87: 0, 90: 0, 91: 0, 92: 0,
    20000: 0, 20001: 0, 20002: 0, 20003: 0, 20004: 0, 20005: 0, 20006: 0,
    20007: 0, 20008: 0, 20009: 0, 20010: 0, 20011: 0, 20012: 0, 20013: 0, 20014: 0, 20015: 0,
}  # fmt: skip

_FIXED = struct.Struct(">hhih")
_CLIENT_ID_LENGTH = struct.Struct(">h")
_CORRELATION_ID = struct.Struct(">i")
FRAME_SIZE = struct.Struct(">i")
"""The size before each request and response."""
KEY_VERSION_CORRELATION = struct.Struct(">hhi")
"""The first fields of a request, which have this form in every version."""


class RequestHeader(NamedTuple):
    """The first fields of every request: API key, API version, correlation id and client id."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def decode_request_header(frame: Buffer) -> tuple[RequestHeader, int]:
    """Decode the header of a frame (without its size). Returns the header, and the position at which the body begins.

    Raises MalformedMessage if the frame is too short, or the client id is not UTF-8.
    """
    try:
        api_key, api_version, correlation_id, _ = _FIXED.unpack_from(frame)
    except struct.error:
        raise MalformedMessage("the request header is cut short") from None
    client_id, position = decode_client_id(frame, api_key, api_version)
    return RequestHeader(api_key, api_version, correlation_id, client_id), position


def decode_client_id(frame: Buffer, api_key: int, api_version: int) -> tuple[str | None, int]:
    """Decode the rest of a request's header, whose first three fields are known. Returns the client id, and the
    position at which the body begins.

    Raises MalformedMessage as `decode_request_header`.
    """
    try:
        (length,) = _CLIENT_ID_LENGTH.unpack_from(frame, _FIXED.size - _CLIENT_ID_LENGTH.size)
        position = _FIXED.size
        client_id = None
        if length >= 0:
            stop = position + length
            if stop > len(frame):
                raise MalformedMessage(f"client id: length {length}, {len(frame) - position} bytes are left")
            client_id = str(frame[position:stop], "utf-8")
            position = stop
        if api_version >= FIRST_FLEXIBLE.get(api_key, 1 << 15):
            tags = frame[position]
            position += 1
            if tags:
                position = tagged_sections(frame, position, len(frame), tags)[1]
    except (struct.error, IndexError):
        raise MalformedMessage("the request header is cut short") from None
    except UnicodeDecodeError:
        raise MalformedMessage("the client id is not UTF-8") from None
    return client_id, position


def encode_request(message: Message, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """Encode a whole request frame: size, header, body. Errors as `codec.encode`."""
    out = bytearray()
    _begin_request(out, message, version, correlation_id, client_id)
    encode_into(message, version, out)
    FRAME_SIZE.pack_into(out, 0, len(out) - FRAME_SIZE.size)
    return bytes(out)


def request_pieces(
    message: Message, version: int, correlation_id: int, client_id: str | None
) -> list[bytes | bytearray | memoryview]:
    """Encode a request as `encode_request`, in pieces to be written in order. Large record batches, given as
    `record.SealedBatch`, are not copied.

    Errors as `codec.encode`.
    """
    out = HoleBuffer()
    _begin_request(out, message, version, correlation_id, client_id)
    encode_into(message, version, out)
    apart_bytes = sum(batch.size for _, batch in out.holes)
    FRAME_SIZE.pack_into(out, 0, len(out) + apart_bytes - FRAME_SIZE.size)
    if not apart_bytes:
        return [out]
    pieces: list[bytes | bytearray | memoryview] = []
    together = bytearray()
    for part in out.parts():
        for buffer in part if isinstance(part, tuple) else (part,):
            if len(buffer) < APART_BYTES:
                together += buffer
                continue
            if together:
                pieces.append(together)
                together = bytearray()
            pieces.append(memoryview(buffer))
    if together:
        pieces.append(together)
    return pieces


def _begin_request(
    out: bytearray, message: Message, version: int, correlation_id: int, client_id: str | None
) -> None:
    """Append to `out` the header of a request, after four bytes of room for the frame's size."""
    schema = message.schema
    name = None if client_id is None else client_id.encode()
    out += bytes(FRAME_SIZE.size)
    out += _FIXED.pack(schema.api_key, version, correlation_id, -1 if name is None else len(name))
    if name:
        out += name
    if version in schema.flexible:
        out.append(0)


def response_header(api_key: int, version: int, correlation_id: int) -> bytes:
    """Return the header of a response, without its size. ApiVersions keeps the oldest form in all versions
    (KIP-511)."""
    header = _CORRELATION_ID.pack(correlation_id)
    if api_key != API_VERSIONS and version >= FIRST_FLEXIBLE.get(api_key, 1 << 15):
        return header + b"\0"
    return header


def response_body_at(request_class: type[Request[_R]], frame: Buffer, version: int) -> int:
    """Return the position at which the body begins in the answer to a request of this class and version. `frame` has no
    size.

    Raises MalformedMessage if the frame is shorter than a header.
    """
    schema = request_class.schema
    position = _CORRELATION_ID.size
    if len(frame) < position:
        raise MalformedMessage("the response header is cut short")
    if schema.api_key == API_VERSIONS or version not in schema.flexible:
        return position
    try:
        tags = frame[position]
        position += 1
        return tagged_sections(frame, position, len(frame), tags)[1] if tags else position
    except IndexError:
        raise MalformedMessage("the response header is cut short") from None


def decode_response(request_class: type[Request[_R]], frame: Buffer, version: int) -> tuple[int, _R]:
    """Return the correlation id and the body of the answer to a request of this class and version. `frame` has no size.

    Raises MalformedMessage if the frame is not such an answer.
    """
    position = response_body_at(request_class, frame, version)
    (correlation_id,) = _CORRELATION_ID.unpack_from(frame)
    response_class: type[_R] = request_class.response  # type: ignore[assignment]
    return correlation_id, decode(response_class, frame, version, position)

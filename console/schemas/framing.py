"""The frame around values of Confluent's serializers: a zero byte, four bytes of schema id, and then the encoded value.

Pure.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

_HEAD: Final = struct.Struct(">bi")
_VARINT_BYTES_MAX: Final = 5
_INDEXES_MAX: Final = 100
"""The deepest nesting of a message's declaration within others."""


class Undecodable(Exception):
    """The bytes cannot be decoded by their schema; the message is the reason."""


class Framed(NamedTuple):
    """An encoded value without its frame, and the id of its schema."""

    schema_id: int
    body: bytes


def framed(data: bytes | None) -> Framed | None:
    """Take a key's or value's bytes out of Confluent's frame; None for bytes that name no schema.

    Ids begin with 1, so eight bytes of a small number name no schema.
    """
    if data is None or len(data) < _HEAD.size:
        return None
    magic, schema_id = _HEAD.unpack_from(data)
    return Framed(schema_id, data[_HEAD.size :]) if magic == 0 and schema_id > 0 else None


def message_of(body: bytes) -> tuple[list[int], bytes]:
    """Split a framed Protobuf value into the path of its message type in the schema and the message's bytes.

    The path has the index of each message declaration, from the outermost in. Raises Undecodable.
    """
    count, at = _varint(body, 0)
    if not 0 <= count <= _INDEXES_MAX:
        raise Undecodable(f"it names a message {count} levels deep, where 1 to {_INDEXES_MAX} are possible")
    indexes = []
    for _ in range(count):
        index, at = _varint(body, at)
        indexes.append(index)
    return indexes or [0], body[at:]


def _varint(body: bytes, at: int) -> tuple[int, int]:
    """Return the variable-length integer in zigzag encoding at position `at`, and the position after it.

    Raises Undecodable.
    """
    number = 0
    for place, byte in enumerate(body[at : at + _VARINT_BYTES_MAX]):
        number |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at + place + 1
    raise Undecodable("it ends before it says which message it is")

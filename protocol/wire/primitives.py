"""Variable-length integers, and the limits that every decoder checks before it allocates."""

from __future__ import annotations

from typing import Final

INT64_END: Final = 1 << 63
ONE_BYTE_VALUES: Final = tuple((byte >> 1) ^ -(byte & 1) for byte in range(0x80))
"""Values of varints of one byte."""


Buffer = bytes | bytearray | memoryview

ARRAY_ELEMENTS_MAX: Final = 1_000_000
TAGGED_FIELDS_MAX: Final = 10_000
STRING_BYTES_MAX: Final = 32_767
_VARLONG_END: Final = 1 << 64


class MalformedMessage(ValueError):
    """Bytes that do not follow the schema: cut short, a length beyond the buffer, a null where none is allowed."""


def too_long(where: str, length: int, left: int) -> MalformedMessage:
    """Return the error for the field `where` with an impossible length: negative, over the limit of its type, or beyond
    the `left` bytes of the buffer."""
    return MalformedMessage(f"{where}: length {length} is not allowed, {left} bytes are left")


def long_uvarint(buffer: Buffer, position: int, first: int) -> tuple[int, int]:
    """Read the rest of an unsigned varint whose first byte `first` is over 127. Returns (value, next position).

    Raises MalformedMessage if the varint takes more than five bytes. Raises IndexError if the buffer ends within it.
    """
    value, shift = first & 0x7F, 7
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 28:
            raise MalformedMessage("an unsigned varint is longer than five bytes")


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Read an unsigned varint of up to five bytes. Returns (value, next position). Errors as in `long_uvarint`."""
    first = buffer[position]
    if first < 0x80:
        return first, position + 1
    return long_uvarint(buffer, position + 1, first)


def write_uvarint(out: bytearray, value: int) -> None:
    """Append an unsigned varint."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def read_varlong(buffer: Buffer, position: int) -> tuple[int, int]:
    """Read a zigzag varint of up to ten bytes, as in records. Returns (value, next position).

    Raises MalformedMessage if the varint takes more than 64 bits, or ten bytes. Raises IndexError if the buffer ends
    within it.
    """
    byte = buffer[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    second = buffer[position + 1]
    value = byte & 0x7F | (second & 0x7F) << 7
    if second < 0x80:
        return (value >> 1) ^ -(value & 1), position + 2
    position, shift = position + 2, 14
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80 and value < _VARLONG_END:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
        if shift > 63:
            raise MalformedMessage("a varint is longer than 64 bits")


def zigzag(value: int) -> bytes:
    """Encode a signed integer as zigzag varint."""
    out = bytearray()
    write_uvarint(out, (value << 1) ^ (value >> 63))
    return bytes(out)


def tagged_sections(
    buffer: Buffer, position: int, end: int, count: int
) -> tuple[list[tuple[int, int, int]], int]:
    """Return the positions of tagged fields as [(tag, start, stop)], and the position after them.

    `count` is the first byte of their number, which the caller has read.

    Raises MalformedMessage if there are too many fields, or one reaches beyond `end`.
    """
    if count > 127:
        count, position = long_uvarint(buffer, position, count)
    if count > TAGGED_FIELDS_MAX or count > end - position:
        raise MalformedMessage(
            f"{count} tagged fields, {end - position} bytes are left; at most {TAGGED_FIELDS_MAX}"
        )
    sections = []
    for _ in range(count):
        tag, position = read_uvarint(buffer, position)
        size, position = read_uvarint(buffer, position)
        if size > end - position:
            raise too_long(f"tagged field {tag}", size, end - position)
        sections.append((tag, position, position + size))
        position += size
    return sections, position

"""A reader for the part of DER that is needed to extract raw values from certificates and protected keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class DerValue(NamedTuple):
    """One DER value: its tag, its content, and its complete encoding."""

    tag: int
    content: bytes
    encoded: bytes


def values_in(data: bytes) -> Iterator[DerValue]:
    """Yield consecutive DER values. Raises ValueError for malformed data."""
    at = 0
    while at < len(data):
        if at + 2 > len(data):
            raise ValueError("a DER value is cut off")
        tag, size, begin = data[at], data[at + 1], at + 2
        if size >= 0x80:
            octets = size & 0x7F
            if not 0 < octets <= 4 or begin + octets > len(data):
                raise ValueError("a DER value has no usable length")
            size = int.from_bytes(data[begin : begin + octets], "big")
            begin += octets
        end = begin + size
        if end > len(data):
            raise ValueError("a DER value is cut off")
        yield DerValue(tag, data[begin:end], data[at:end])
        at = end


def object_identifier(content: bytes) -> str:
    """Return the dotted form of an object identifier. Raises ValueError."""
    numbers, value = [], 0
    for position, octet in enumerate(content):
        value = value << 7 | octet & 0x7F
        if not octet & 0x80:
            numbers.append(value)
            value = 0
        elif position == len(content) - 1:
            raise ValueError("an object identifier is cut off")
    if not numbers:
        raise ValueError("an object identifier is empty")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))

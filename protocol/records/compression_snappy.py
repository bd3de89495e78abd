"""Snappy compression, in the framing of Java's SnappyOutputStream, or without framing."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

import cramjam

from ..wire.primitives import Buffer

FAILURE: Final[type[Exception]] = cramjam.DecompressionError
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_RATIO_MAX: Final = 22
"""Highest ratio of expanded to compressed bytes: the densest element of snappy copies 64 bytes and takes three."""
_LENGTH: Final = struct.Struct(">i")


def compress(data: Buffer, level: int | None) -> bytes:
    """Compress data into the format of Java's SnappyOutputStream: a header, then blocks of raw snappy, each after its
    length. Snappy has no levels."""
    view = memoryview(data)
    pieces = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        pieces += (_LENGTH.pack(len(block)), block)
    return b"".join(pieces)


def expand(data: Buffer, piece_bytes: int) -> Iterator[bytes]:
    """Yield the expanded blocks of snappy data; `piece_bytes` is ignored. Raises `FAILURE` or EOFError for damaged
    data."""
    view = memoryview(data)
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        yield _raw_snappy(view)
        return
    position = len(_XERIAL_HEADER)
    while position < len(view):
        if position + _LENGTH.size > len(view):
            raise EOFError("a block is cut short")
        (length,) = _LENGTH.unpack_from(view, position)
        position += _LENGTH.size
        if not 0 <= length <= len(view) - position:
            raise EOFError(f"a block claims {length} bytes, {len(view) - position} are left")
        yield _raw_snappy(view[position : position + length])
        position += length


def _raw_snappy(block: memoryview) -> bytes:
    """Expand one snappy block. The block begins with its expanded length, which is checked before anything is
    allocated."""
    length = cramjam.snappy.decompress_raw_len(block)
    if length > len(block) * _RATIO_MAX:
        raise EOFError(f"a block of {len(block)} bytes claims to expand to {length}")
    return bytes(cramjam.snappy.decompress_raw(block))

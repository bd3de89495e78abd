"""The declared end of compressed data, found without expanding it: checks of faults that the decompressors ignore.

The formats are specified by RFC 8878 (zstd) and by the LZ4 frame format.
"""

from __future__ import annotations

import struct
from typing import Final

from ..wire.primitives import Buffer

_UINT32: Final = struct.Struct("<I")
_ZSTD_RLE: Final = 1
_ZSTD_HEADER_BYTES_MAX: Final = 18
_LZ4_MAGIC: Final = 0x184D2204
_LZ4_DICTIONARY, _LZ4_CONTENT_CHECKSUM, _LZ4_CONTENT_SIZE = 0x01, 0x04, 0x08
_LZ4_BLOCK_CHECKSUM, _LZ4_INDEPENDENT = 0x10, 0x20
_LZ4_STORED: Final = 0x8000_0000
_LZ4_HEADER_BYTES: Final = 7
_CHECKSUM_BYTES: Final = 4


def _is_skippable(magic: int) -> bool:
    return magic & 0xFFFF_FFF0 == 0x184D_2A50


def check_zstd_ends(data: Buffer) -> int:
    """Check that zstd frames are complete, since a decompressor ends silently where the data ends. Returns the largest
    window of the frames, in bytes.

    Raises EOFError if the data ends within a frame, or contains none. Raises zstandard.ZstdError if the data is no
    frame.
    """
    import zstandard  # loaded late: only batches of zstd need it

    at, end, window_bytes = 0, len(data), 0
    try:
        while at < end or not end:
            (magic,) = _UINT32.unpack_from(data, at)
            if _is_skippable(magic):
                at += 8 + _UINT32.unpack_from(data, at + 4)[0]
                continue
            head = bytes(data[at : at + _ZSTD_HEADER_BYTES_MAX])
            at += zstandard.frame_header_size(head)
            last = False
            while not last:
                block = data[at] | data[at + 1] << 8 | data[at + 2] << 16
                last, kind, size = bool(block & 1), block >> 1 & 3, block >> 3
                at += 3 + (1 if kind == _ZSTD_RLE else size)
            parameters = zstandard.get_frame_parameters(head)
            window_bytes = max(window_bytes, parameters.window_size)
            if parameters.has_checksum:
                at += _CHECKSUM_BYTES
    except (struct.error, IndexError):
        at = end + 1
    if at > end:
        raise EOFError("it is cut short")
    return window_bytes


def check_lz4_is_for_all(data: Buffer) -> None:
    """Check the rules of Kafka's Java clients and librdkafka beyond the lz4 format: one frame, no bytes after it, and
    blocks that are independent of each other.

    Raises EOFError if the data breaks these rules, or is cut short.
    """
    try:
        if _UINT32.unpack_from(data)[0] != _LZ4_MAGIC:
            raise EOFError("it does not begin with a frame")
        flags = data[4]
        if not flags & _LZ4_INDEPENDENT:
            raise EOFError("its blocks depend on each other")
        at = _LZ4_HEADER_BYTES + bool(flags & _LZ4_CONTENT_SIZE) * 8 + bool(flags & _LZ4_DICTIONARY) * 4
        per_block = _UINT32.size + bool(flags & _LZ4_BLOCK_CHECKSUM) * _CHECKSUM_BYTES
        while size := _UINT32.unpack_from(data, at)[0]:
            at += per_block + (size & ~_LZ4_STORED)
        at += _UINT32.size + bool(flags & _LZ4_CONTENT_CHECKSUM) * _CHECKSUM_BYTES
    except (struct.error, IndexError):
        at = len(data) + 1
    if at > len(data):
        raise EOFError("it is cut short")
    if at < len(data):
        raise EOFError(f"{len(data) - at} bytes follow its frame; consumers read one")

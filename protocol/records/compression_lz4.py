"""LZ4 compression, in the LZ4 frame format."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import lz4.frame

from ..wire.primitives import Buffer

FAILURE: Final = RuntimeError
_SLICE_BYTES: Final = 64 * 1024


def compress(data: Buffer, level: int | None) -> bytes:
    """Compress data into one lz4 frame, of independent blocks, since Java reads no other blocks."""
    compressed: bytes = lz4.frame.compress(
        data, compression_level=level or 0, block_linked=False, store_size=False
    )
    return compressed


def expand(data: Buffer, piece_bytes: int) -> Iterator[bytes]:
    """Yield the expanded content of all lz4 frames of `data`, in pieces of at most `piece_bytes`. Raises `FAILURE` or
    EOFError for damaged data."""
    view = memoryview(data)
    stream, at = lz4.frame.LZ4FrameDecompressor(), 0
    while at < len(view):
        rest: Buffer = view[at : at + _SLICE_BYTES]
        at += len(rest)
        while True:
            piece = stream.decompress(rest, max_length=piece_bytes)
            yield piece
            if stream.eof or (stream.needs_input and len(piece) < piece_bytes):
                break
            rest = b""
        if stream.eof and (at := at - len(stream.unused_data or b"")) < len(view):
            stream = lz4.frame.LZ4FrameDecompressor()
    if not stream.eof:
        raise EOFError("it is cut short")

"""Gzip compression."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final

from ..wire.primitives import Buffer

FAILURE: Final = zlib.error
_SLICE_BYTES: Final = 64 * 1024
_WINDOW: Final = 31  # zlib's code for a gzip header around the largest window


def compress(data: Buffer, level: int | None) -> bytes:
    """Compress data into one gzip member."""
    stream = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, _WINDOW)
    return stream.compress(data) + stream.flush()


def expand(data: Buffer, piece_bytes: int) -> Iterator[bytes]:
    """Yield the expanded content of all gzip members of `data`, in pieces of at most `piece_bytes`. Raises `FAILURE` or
    EOFError for damaged data."""
    view = memoryview(data)
    stream, at = zlib.decompressobj(_WINDOW), 0
    while at < len(view):
        # Data is fed in slices, since each call copies the input that it leaves over.
        rest: Buffer = view[at : at + _SLICE_BYTES]
        at += len(rest)
        while rest and not stream.eof:
            yield stream.decompress(rest, piece_bytes)
            rest = stream.unconsumed_tail
        if stream.eof and (at := at - len(stream.unused_data)) < len(view):
            stream = zlib.decompressobj(_WINDOW)
    while piece := stream.decompress(stream.unconsumed_tail, piece_bytes):
        yield piece
    if not stream.eof:
        raise EOFError("it is cut short")

"""Zstandard compression."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import zstandard

from ..wire.primitives import Buffer
from .frame_ends import check_zstd_ends

FAILURE: Final = zstandard.ZstdError
_WINDOW_BYTES_MAX: Final = 128 * 1024 * 1024
_KEPT_WINDOW_BYTES: Final = 8 * 1024 * 1024
_idle: Final[list[zstandard.ZstdDecompressor]] = []
"""Decompressors kept for reuse, since making one takes longer than expanding a small batch.

The list holds as many as were in use at once, one for each thread. A decompressor that has allocated memory for a
larger window is not kept.
"""


def compress(data: Buffer, level: int | None) -> bytes:
    """Compress data into one zstd frame. `level` is zstd's level, None for the default."""
    return zstandard.ZstdCompressor(level=3 if level is None else level).compress(data)


def expand(data: Buffer, piece_bytes: int) -> Iterator[bytes]:
    """Yield the expanded content of all zstd frames of `data`, in pieces of at most `piece_bytes`. Raises `FAILURE` or
    EOFError for damaged data."""
    window_bytes = check_zstd_ends(data)
    try:
        decompressor = _idle.pop()
    except IndexError:
        decompressor = zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES_MAX)
    try:
        stream = decompressor.stream_reader(data, read_across_frames=True)
        while piece := stream.read(piece_bytes):
            yield piece
    finally:
        if window_bytes <= _KEPT_WINDOW_BYTES:
            _idle.append(decompressor)

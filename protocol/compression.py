"""Compression of the records of a batch, in the forms that Kafka's Java clients read and write."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Final

import cramjam
import lz4.frame
import zstandard

from .errors import ErrorCode, KafkaError
from .frame_ends import check_zstd_ends
from .primitives import Buffer

DECOMPRESSED_BYTES_MAX: Final = 256 * 1024 * 1024
"""Default bound of what one batch may expand to."""

_CHUNK_BYTES: Final = 1024 * 1024
_SLICE_BYTES: Final = 64 * 1024
_GZIP_WINDOW: Final = 31  # zlib's code for a gzip header around the largest window
_ZSTD_WINDOW_BYTES_MAX: Final = 128 * 1024 * 1024
_ZSTD_KEPT_WINDOW_BYTES: Final = 8 * 1024 * 1024
_idle_zstd: Final[list[zstandard.ZstdDecompressor]] = []
"""Making one takes longer than a small batch. As many are kept as were in use at once, one for each thread, and none
that has taken memory for a larger window."""

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_SNAPPY_RATIO_MAX: Final = 22
"""A copy of 64 bytes takes three, and there is nothing shorter."""
_LENGTH: Final = struct.Struct(">i")


class Compression(IntEnum):
    """The lowest three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: Compression, data: Buffer, level: int | None = None) -> bytes:
    """Compress; `level` is the library's own scale, its default if None. Snappy has no levels."""
    if codec is Compression.GZIP:
        stream = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, _GZIP_WINDOW)
        return stream.compress(data) + stream.flush()
    if codec is Compression.SNAPPY:
        return _snappy_xerial(data)
    if codec is Compression.LZ4:
        # Java reads independent blocks only.
        compressed: bytes = lz4.frame.compress(
            data, compression_level=level or 0, block_linked=False, store_size=False
        )
        return compressed
    if codec is Compression.ZSTD:
        return zstandard.ZstdCompressor(level=3 if level is None else level).compress(data)
    return bytes(data)


def decompress(codec: int, data: Buffer, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """Expand to at most `bytes_max` bytes.

    Raises KafkaError: CORRUPT_MESSAGE if the data is damaged or expands further; UNSUPPORTED_COMPRESSION_TYPE if the
    codec is unknown.
    """
    if codec == Compression.NONE:
        return bytes(data)
    pieces, size = [], 0
    for piece in expand(codec, data, _CHUNK_BYTES):
        size += len(piece)
        if size > bytes_max:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE, f"a batch expands to more than the {bytes_max} bytes allowed"
            )
        pieces.append(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def expand(codec: int, data: Buffer, piece_bytes: int) -> Iterator[bytes]:
    """Expand piece by piece. A piece has at most `piece_bytes`; with snappy it is a whole block, and has up to 22 times
    the bytes that the block takes in `data`.

    Raises KafkaError: CORRUPT_MESSAGE where the data is damaged; UNSUPPORTED_COMPRESSION_TYPE if the codec is unknown.
    """
    expander = _EXPANDERS.get(codec)
    if expander is None:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"compression type {codec}; 1 to 4 are known"
        )
    try:
        yield from expander(data, piece_bytes)
    except (zlib.error, zstandard.ZstdError, cramjam.DecompressionError, RuntimeError, EOFError) as error:
        name = Compression(codec).name.lower()
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the batch's {name} data is damaged: {error}") from error


def _snappy_xerial(data: Buffer) -> bytes:
    """A header, then blocks of raw snappy behind their lengths: what Java's SnappyOutputStream writes."""
    view = memoryview(data)
    pieces = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        pieces += (_LENGTH.pack(len(block)), block)
    return b"".join(pieces)


def _expand_snappy(data: Buffer, _piece_bytes: int) -> Iterator[bytes]:
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
    """One block; its length stands in front, so that it is checked before anything is allocated."""
    length = cramjam.snappy.decompress_raw_len(block)
    if length > len(block) * _SNAPPY_RATIO_MAX:
        raise EOFError(f"a block of {len(block)} bytes claims to expand to {length}")
    return bytes(cramjam.snappy.decompress_raw(block))


def _expand_gzip(data: Buffer, piece_bytes: int) -> Iterator[bytes]:
    view = memoryview(data)
    stream, at = zlib.decompressobj(_GZIP_WINDOW), 0
    while at < len(view):
        # In slices, as what a call leaves over is copied.
        rest: Buffer = view[at : at + _SLICE_BYTES]
        at += len(rest)
        while rest and not stream.eof:
            yield stream.decompress(rest, piece_bytes)
            rest = stream.unconsumed_tail
        if stream.eof and (at := at - len(stream.unused_data)) < len(view):
            stream = zlib.decompressobj(_GZIP_WINDOW)
    while piece := stream.decompress(stream.unconsumed_tail, piece_bytes):
        yield piece
    if not stream.eof:
        raise EOFError("it is cut short")


def _expand_lz4(data: Buffer, piece_bytes: int) -> Iterator[bytes]:
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


def _expand_zstd(data: Buffer, piece_bytes: int) -> Iterator[bytes]:
    window_bytes = check_zstd_ends(data)
    try:
        decompressor = _idle_zstd.pop()
    except IndexError:
        decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES_MAX)
    try:
        stream = decompressor.stream_reader(data, read_across_frames=True)
        while piece := stream.read(piece_bytes):
            yield piece
    finally:
        if window_bytes <= _ZSTD_KEPT_WINDOW_BYTES:
            _idle_zstd.append(decompressor)


_EXPANDERS: Final[dict[int, Callable[[Buffer, int], Iterator[bytes]]]] = {
    Compression.GZIP: _expand_gzip,
    Compression.SNAPPY: _expand_snappy,
    Compression.LZ4: _expand_lz4,
    Compression.ZSTD: _expand_zstd,
}

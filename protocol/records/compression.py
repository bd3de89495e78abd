"""Compression of the records of a batch, in the formats that Kafka's Java clients read and write."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Final, Protocol

from ..errors import ErrorCode, KafkaError
from ..wire.primitives import Buffer

DECOMPRESSED_BYTES_MAX: Final = 256 * 1024 * 1024
"""Default limit of the expanded size of one batch."""

_CHUNK_BYTES: Final = 1024 * 1024


class Compression(IntEnum):
    """Compression types of record batches, with Kafka's numbers: the lowest three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: Compression, data: Buffer, level: int | None = None) -> bytes:
    """Compress data. `level` is on the library's own scale, None for its default. Snappy has no levels."""
    if codec is Compression.NONE:
        return bytes(data)
    return _library(codec).compress(data, level)


def decompress(codec: int, data: Buffer, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """Expand data to at most `bytes_max` bytes.

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
    """Yield the expanded data in pieces.

    A piece has at most `piece_bytes`. With snappy a piece is a whole block, which may have up to 22 times the bytes
    that the block takes in `data`.

    Raises KafkaError: CORRUPT_MESSAGE where the data is damaged; UNSUPPORTED_COMPRESSION_TYPE if the codec is unknown.
    """
    library = _library(codec)
    try:
        yield from library.expand(data, piece_bytes)
    except (library.FAILURE, RuntimeError, EOFError) as error:
        name = Compression(codec).name.lower()
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the batch's {name} data is damaged: {error}") from error


class _Library(Protocol):
    """The interface of a codec's module, such as `compression_zstd`."""

    @property
    def FAILURE(self) -> type[Exception]: ...
    def compress(self, data: Buffer, level: int | None) -> bytes: ...
    def expand(self, data: Buffer, piece_bytes: int) -> Iterator[bytes]: ...


def _library(codec: int) -> _Library:
    """Return the module of a codec, loaded with the first batch that needs it. Raises KafkaError
    UNSUPPORTED_COMPRESSION_TYPE."""
    if codec == Compression.GZIP:
        from . import compression_gzip

        return compression_gzip
    if codec == Compression.SNAPPY:
        from . import compression_snappy

        return compression_snappy
    if codec == Compression.LZ4:
        from . import compression_lz4

        return compression_lz4
    if codec == Compression.ZSTD:
        from . import compression_zstd

        return compression_zstd
    raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"compression type {codec}; 1 to 4 are known")

"""Batches with a right checksum and unreadable records, as older brokers, mirrors or bad luck leave them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

from ottla.protocol.records.compression import Compression
from ottla.protocol.records.record_batch import (
    COMPRESSION_MASK,
    HEADER_SIZE,
    compute_crc,
    parse_header,
    walk_batches,
)

_CRC_AT, _ATTRIBUTES_AT, _COUNT_AT = 17, 21, 57


def sealed(batch: bytearray) -> bytes:
    """Return the batch with the checksum of its current bytes."""
    struct.pack_into(">I", batch, _CRC_AT, compute_crc(batch, 0, len(batch)))
    return bytes(batch)


def _count(change: int) -> Callable[[bytearray], None]:
    def poison(batch: bytearray) -> None:
        struct.pack_into(">i", batch, _COUNT_AT, parse_header(batch).record_count + change)

    return poison


def _body(batch: bytearray) -> None:
    batch[HEADER_SIZE:] = b"\xff" * (len(batch) - HEADER_SIZE)


def _first_length(batch: bytearray) -> None:
    batch[HEADER_SIZE] = 0x03


def _codec(codec: int) -> Callable[[bytearray], None]:
    def poison(batch: bytearray) -> None:
        attributes = parse_header(batch).attributes & ~COMPRESSION_MASK | codec
        struct.pack_into(">h", batch, _ATTRIBUTES_AT, attributes)

    return poison


POISONS: dict[str, Callable[[bytearray], None]] = {
    "more records than there are": _count(1),
    "fewer records than there are": _count(-1),
    "a negative number of records": _count(-1000),
    "two thousand million records": _count(2_000_000_000),
    "garbage": _body,
    "a record of negative length": _first_length,
    "no compressed data": _codec(Compression.ZSTD),
    "a compression that nobody knows": _codec(6),
}


def poisoned(batch: bytes, kind: str) -> bytes:
    """Return an unreadable batch with the size, offsets and producer of `batch`, which must not be compressed."""
    changed = bytearray(batch)
    POISONS[kind](changed)
    return sealed(changed)


def poison(directory: Path, topic: str, base_offset: int, kind: str = "garbage") -> None:
    """Poison the batch at this offset of partition 0 in its file, since no client can produce such a batch."""
    (segment,) = directory.rglob(f"{topic}-0/{0:020d}.log")
    data = segment.read_bytes()
    for position, header in walk_batches(data):
        if header.base_offset == base_offset:
            batch = poisoned(data[position : position + header.size], kind)
            with segment.open("r+b") as file:
                file.seek(position)
                file.write(batch)

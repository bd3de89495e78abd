"""Record batches for tests of the log."""

from __future__ import annotations

import struct

from crc32c import crc32c

from ottla.protocol.records.compression import Compression, compress
from ottla.protocol.records.record import decode_records
from ottla.protocol.records.record_batch import COMPRESSION_MASK
from ottla.protocol.records.record_codec import encode_record

_HEADER = struct.Struct(">qiibIhiqqqhii")
_NO_HEADERS = b"\0"


def make_batch(
    count: int = 1,
    payload: bytes = b"payload",
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    timestamp: int = 1_000,
    max_timestamp: int | None = None,
    attributes: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytearray:
    """Make a batch of `count` records, compressed by `attributes`.

    The last record has the value `payload` and the largest timestamp. `producer` is (id, epoch, first sequence).
    """
    last_ms = 0 if max_timestamp is None else max_timestamp - timestamp
    body = b"".join(encode_record(None, b"", _NO_HEADERS, 0, delta) for delta in range(count - 1))
    body += encode_record(None, payload, _NO_HEADERS, last_ms, count - 1)
    return raw_batch(
        count,
        compress(Compression(attributes & COMPRESSION_MASK), body),
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        timestamp=timestamp,
        max_timestamp=max_timestamp,
        attributes=attributes,
        producer=producer,
    )


def value_of(batch: bytes | bytearray | memoryview) -> bytes:
    """Return the `payload` of `make_batch`."""
    *_, last = decode_records(batch)
    return last.value or b""


def raw_batch(
    count: int = 1,
    body: bytes = b"body",
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    timestamp: int = 1_000,
    max_timestamp: int | None = None,
    attributes: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytearray:
    """Make a valid header, CRC included, around any bytes."""
    producer_id, epoch, sequence = producer
    out = bytearray(
        _HEADER.pack(
            base_offset,
            49 + len(body),
            leader_epoch,
            2,
            0,
            attributes,
            count - 1,
            timestamp,
            timestamp if max_timestamp is None else max_timestamp,
            producer_id,
            epoch,
            sequence,
            count,
        )
        + body
    )
    struct.pack_into(">I", out, 17, crc32c(bytes(out[21:])))
    return out

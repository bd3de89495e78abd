"""Record batches for tests of the log: a valid header around any bytes, since the log reads no record."""

from __future__ import annotations

import struct

from crc32c import crc32c

_HEADER = struct.Struct(">qiibIhiqqqhii")


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
    """A batch of ``count`` offsets; ``producer`` is (id, epoch, first sequence)."""
    producer_id, epoch, sequence = producer
    out = bytearray(
        _HEADER.pack(
            base_offset,
            49 + len(payload),
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
        + payload
    )
    struct.pack_into(">I", out, 17, crc32c(bytes(out[21:])))
    return out

"""Invalid bodies of batches."""

from __future__ import annotations

import struct

from crc32c import crc32c

from ottla.protocol.records.compression import Compression, compress
from ottla.protocol.records.record_batch import COMPRESSION_MASK
from ottla.protocol.wire.primitives import zigzag
from tests.dataplane.log.batches import raw_batch

NOW = 1_700_000_000_000


def record(
    delta: int = 0,
    *,
    later_ms: int = 0,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    attributes: int = 0,
    size: int | None = None,
    key_size: int | None = None,
    value_size: int | None = None,
    headers: bytes = b"\0",
    tail: bytes = b"",
) -> bytes:
    """Return one record; sizes are right unless they are given."""
    fields = bytes([attributes]) + zigzag(later_ms) + zigzag(delta)
    for blob, claimed in ((key, key_size), (value, value_size)):
        honest = -1 if blob is None else len(blob)
        fields += zigzag(honest if claimed is None else claimed) + (blob or b"")
    fields += headers + tail
    return zigzag(len(fields) if size is None else size) + fields


TWO = record(0) + record(1)

MALFORMED: dict[str, tuple[int, bytes, str]] = {
    "count too high": (5, TWO, "ends within or before record 2, its header says 5"),
    "count too low": (1, TWO, "goes on behind the 1 records"),
    "no records": (1, b"", "ends within or before record 0"),
    "cut within the second record": (2, TWO[:-3], "ends within or before record 1"),
    "cut within a varint": (1, b"\x80", "ends within or before record 0"),
    "garbage": (1, b"\xff" * 40, "record 0 of 1 is malformed: a varint of it is longer than 32 bits"),
    "bytes behind the last record": (2, TWO + b"\0\0", "goes on behind the 2 records"),
    "offset deltas 0, 0": (2, record(0) * 2, "record 1 of 2 is malformed: its offset delta is 0, not 1"),
    "offset deltas 0, 2": (2, record(0) + record(2), "its offset delta is 2, not 1"),
    "offset deltas 1, 0": (2, record(1) + record(0), "record 0 of 2 is malformed: its offset delta is 1, not 0"),
    "size of a record negative": (1, record(size=-3), "its size is -3"),
    "size of a record 0": (2, b"\0" + record(1), "record 0 of 2 is malformed: its size ends it within its fields"),
    "size of a record too low": (2, record(size=5) + record(1), "record 0 of 2 is malformed"),
    "size of a record too high": (2, record(size=12) + record(1), "record 0 of 2 is malformed: 4 bytes of it follow"),
    "bytes behind the last field": (2, record(tail=b"xyz") + record(1), "3 bytes of it follow its last field"),
    "key size -2": (1, record(key=b"", key_size=-2), "its key has a size of -2"),
    "key size beyond the record": (1, record(key_size=50), "its key has a size of 50, 4 bytes of the record are left"),
    "value size -2": (1, record(value=b"", value_size=-2), "its value has a size of -2"),
    "value size beyond the record": (1, record(value_size=2**31 - 1), "its value has a size of 2147483647"),
    "header count negative": (1, record(headers=zigzag(-1)), "it has -1 headers"),
    "header count beyond the record": (1, record(headers=zigzag(2**31 - 1)), "it has 2147483647 headers"),
    "header without a name": (1, record(headers=zigzag(1) + zigzag(-1) + b"\2x"), "a header's name has a size of -1"),
    "header name beyond the record": (1, record(headers=zigzag(1) + zigzag(9) + b"ab"), "name has a size of 9"),
    "header value size -2": (1, record(headers=zigzag(1) + b"\2a" + zigzag(-2)), "a header's value has a size of -2"),
    "timestamp of more than 64 bits": (1, record(later_ms=2**63 - 1), "has more than 64 bits"),
}  # fmt: skip
"""Malformed batches by their fault: the header's count, the records, and part of the message."""

FINE: dict[str, tuple[int, bytes]] = {
    "plain": (2, TWO),
    "nulls": (1, record(key=None, value=None)),
    "headers": (1, record(headers=zigzag(2) + b"\2a\2b" + b"\0" + zigzag(-1))),
    "a header's name that is no UTF-8": (1, record(headers=zigzag(1) + b"\4\xff\xfe\0")),
    "attributes, which have no meaning yet": (1, record(attributes=0x7F)),
    "a long varint": (1, record(later_ms=-(2**40))),
}


def produced(
    count: int, body: bytes, codec: Compression = Compression.NONE, *, attributes: int = 0
) -> bytearray:
    """Return a batch with these records and an otherwise valid header."""
    compressed = compress(codec, body) if codec else body
    assert not attributes & COMPRESSION_MASK
    return raw_batch(count, compressed, timestamp=NOW, attributes=codec | attributes)


def with_header(
    batch: bytes | bytearray,
    *,
    base_offset: int | None = None,
    leader_epoch: int | None = None,
    attributes: int | None = None,
    max_timestamp: int | None = None,
) -> bytearray:
    """Return the batch with other fields in its header, and the matching CRC."""
    changed = bytearray(batch)
    for position, kind, value in (
        (0, ">q", base_offset),
        (12, ">i", leader_epoch),
        (21, ">h", attributes),
        (35, ">q", max_timestamp),
    ):
        if value is not None:
            struct.pack_into(kind, changed, position, value)
    struct.pack_into(">I", changed, 17, crc32c(bytes(changed[21:])))
    return changed

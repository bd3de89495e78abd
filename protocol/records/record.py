"""Records inside a batch of format v2, written by producers and read by consumers.

Brokers use this module only for markers, and for topics with a compression of their own. The body's codec is
`record_codec.py`, or its equivalent in C if that was built; the environment variable OTTLA_PURE_PYTHON=1 disables the
latter.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from ..checksum import crc32c
from ..errors import ErrorCode, KafkaError
from ..pure_python import PURE_PYTHON
from ..wire.primitives import Buffer
from .compression import DECOMPRESSED_BYTES_MAX, Compression, compress, decompress
from .record_batch import (
    COMPRESSION_MASK,
    CONTROL_FLAG,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    parse_header,
    patch_record_tail,
)
from .record_codec import Header as Header
from .record_codec import Headers as Headers
from .record_codec import NewRecord as NewRecord
from .record_codec import Row

if TYPE_CHECKING:
    from . import record_codec as _codec
else:
    try:
        if PURE_PYTHON:
            raise ImportError("the codec in C is turned down")
        from . import _record_codec as _codec
    except ImportError:  # disabled, not built, or built for another Python
        from . import record_codec as _codec

CODEC: Final = "python" if _codec.__name__.endswith(".record_codec") else "C"
"""Name of the codec of record bodies in use."""
Columns = _codec.Columns
RecordCursor = _codec.RecordCursor
encode_records = _codec.encode_records

NO_COMMIT_INDEX: Final = -1
CONTROL_BATCH_BYTES_MAX: Final = 64 << 10
"""Highest size of a control batch; a marker is much smaller."""

BATCH_HEAD: Final = struct.Struct(">qiibI")
BATCH_BODY: Final = struct.Struct(">hiqqqhii")
_CONTROL_KEY: Final = struct.Struct(">hh")
_CONTROL_VALUE: Final = struct.Struct(">hi")
_COMMIT_INDEX: Final = struct.Struct(">q")
_NO_HEADERS: Final = b"\0"
_PORTION: Final = 500
"""Number of records that are decoded at a time, if they are asked for one by one."""


class Record(NamedTuple):
    """A record of a batch. The timestamp is the producer's, in ms since 1970."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class EncodedRecords(NamedTuple):
    """The encoded records of a batch before compression, with their number, and their first and highest timestamp in ms
    since 1970."""

    body: bytes
    record_count: int
    first_ms: int
    last_ms: int


class ControlType(IntEnum):
    """Types of control records, the transaction markers (KIP-98), with Kafka's numbers."""

    ABORT = 0
    COMMIT = 1


class ControlRecord(NamedTuple):
    """A transaction marker: the control record that ends a transaction in this partition, by commit or abort."""

    type: ControlType
    number: int
    """Number of the transaction among those of its transactional id; stored in the field of Kafka's coordinator
    epoch."""
    commit_index: int = NO_COMMIT_INDEX
    """Position of the decision in the order of all decisions. Clients skip the field; Kafka's markers do not have
    it."""


def encode_batch(
    records: Iterable[NewRecord],
    *,
    compression: Compression = Compression.NONE,
    compression_level: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
) -> bytes:
    """Encode a batch with base offset 0 and leader epoch -1, as a producer sends it. `records` must not be empty."""
    return b"".join(
        encode_batch_of(
            EncodedRecords(*encode_records(records)),
            compression=compression,
            compression_level=compression_level,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            transactional=transactional,
        )
    )


class SealedBatch(NamedTuple):
    """An encoded batch in two pieces, header and records, so that a large batch can be sent without joining them."""

    head: bytes
    body: bytes

    @property
    def size(self) -> int:
        """Size of both pieces together, in bytes."""
        return len(self.head) + len(self.body)


def encode_batch_of(
    records: EncodedRecords,
    *,
    compression: Compression = Compression.NONE,
    compression_level: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
) -> SealedBatch:
    """Encode a batch as `encode_batch` does, from records that were encoded before."""
    attributes = compression | (TRANSACTIONAL_FLAG if transactional else 0)
    body, count, first_ms, last_ms = records
    if compression:
        body = compress(compression, body, compression_level)
    return _seal(attributes, count, first_ms, last_ms, producer_id, producer_epoch, base_sequence, body)


def recompressed(
    header: BatchHeader, records: Buffer, codec: Compression, level: int | None = None
) -> bytearray:
    """Return the batch of `header`, with its expanded records `records` compressed by `codec`, and a new CRC."""
    body = compress(codec, records, level)
    fields = BATCH_BODY.pack(header.attributes & ~COMPRESSION_MASK | codec, *header[6:])
    crc = crc32c(body, crc32c(fields))
    length = HEADER_SIZE - LOG_OVERHEAD + len(body)
    head = BATCH_HEAD.pack(header.base_offset, length, header.partition_leader_epoch, MAGIC, crc)
    return bytearray().join((head, fields, body))


def encode_control_batch(
    record: ControlRecord, *, timestamp_ms: int, producer_id: int, producer_epoch: int
) -> bytes:
    """Encode a transaction marker: a batch of one control record."""
    key = _CONTROL_KEY.pack(0, record.type)
    value = _CONTROL_VALUE.pack(0, record.number) + _COMMIT_INDEX.pack(record.commit_index)
    body, count, first_ms, last_ms = encode_records([(key, value, timestamp_ms)])
    attributes = TRANSACTIONAL_FLAG | CONTROL_FLAG
    return b"".join(
        _seal(attributes, count, first_ms, last_ms, producer_id, producer_epoch, NO_SEQUENCE, body)
    )


def without_commit_index(batch: bytearray | memoryview, position: int, header: BatchHeader) -> None:
    """Remove the commit index, an extension of Kafka's format, from the complete transaction marker at `position`;
    nothing else but the CRC changes. In another cluster the commit index would count among the decisions of that
    cluster."""
    patch_record_tail(batch, position, header, _COMMIT_INDEX.pack(NO_COMMIT_INDEX) + _NO_HEADERS)


def decode_control_record(record: Record) -> ControlRecord | None:
    """Decode a record of a control batch; None for unknown types, which readers have to skip.

    Raises KafkaError: CORRUPT_MESSAGE if its key or value is too short.
    """
    key, value = record.key or b"", record.value or b""
    if len(key) < _CONTROL_KEY.size:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the key of a control record has {len(key)} bytes")
    _, kind = _CONTROL_KEY.unpack_from(key)
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    if len(value) < _CONTROL_VALUE.size:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the value of a control record has {len(value)} bytes")
    _, number = _CONTROL_VALUE.unpack_from(value)
    commit_index = NO_COMMIT_INDEX
    if len(value) >= _CONTROL_VALUE.size + _COMMIT_INDEX.size:
        (commit_index,) = _COMMIT_INDEX.unpack_from(value, _CONTROL_VALUE.size)
    return ControlRecord(ControlType(kind), number, commit_index)


def read_control_record(batch: Buffer) -> ControlRecord | None:
    """Decode the first record of the control batch at the beginning of `batch`; the CRC is not checked.

    Returns None for an unknown type, which readers have to skip, or if the batch has no record left. Raises KafkaError:
    CORRUPT_MESSAGE if the batch is damaged or cut short.
    """
    if parse_header(batch).size > CONTROL_BATCH_BYTES_MAX:
        return None
    for record in decode_records(batch, CONTROL_BATCH_BYTES_MAX):
        return decode_control_record(record)
    return None


def decode_records(batch: Buffer, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> Iterator[Record]:
    """Yield the records of the batch at the beginning of `batch`; the CRC is not checked.

    Raises KafkaError: CORRUPT_MESSAGE where the batch is damaged or expands to more than `bytes_max` bytes;
    UNSUPPORTED_COMPRESSION_TYPE.
    """
    header = parse_header(batch)
    cursor = RecordCursor(
        bytes(
            expanded_body(batch, header, bytes_max)
        ),  # a copy, since the batch may change before the last record is asked for
        header.record_count,
        header.base_offset,
        header.base_timestamp,
        Record,
    )
    return _one_by_one(cursor)


def expanded_body(batch: Buffer, header: BatchHeader, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> Buffer:
    """Return the expanded records of the batch at the beginning of `batch`, as input of a RecordCursor. Uncompressed
    records are not copied.

    Raises KafkaError: as `decode_records`.
    """
    if header.magic != MAGIC or not HEADER_SIZE <= header.size <= len(batch):
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"a batch of magic {header.magic} claims {header.size} bytes, {len(batch)} are there",
        )
    body = memoryview(batch)[HEADER_SIZE : header.size]
    return decompress(header.compression, body, bytes_max) if header.compression else body


def _one_by_one(cursor: RecordCursor[Row]) -> Iterator[Row]:
    rows = cursor.take(1)  # some callers want only the first record
    while rows:
        yield from rows
        rows = cursor.take(_PORTION)


def _seal(
    attributes: int,
    count: int,
    first_ms: int,
    last_ms: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    body: bytes,
) -> SealedBatch:
    """Build the batch header with its CRC, and return it with the body."""
    fields = BATCH_BODY.pack(
        attributes, count - 1, first_ms, last_ms, producer_id, producer_epoch, base_sequence, count
    )
    crc = crc32c(body, crc32c(fields))
    head = BATCH_HEAD.pack(0, HEADER_SIZE - LOG_OVERHEAD + len(body), -1, MAGIC, crc)
    return SealedBatch(head + fields, body)

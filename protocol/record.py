"""Records inside a batch of format v2: what producers write and consumers read. Brokers come here only where a
topic has a compression of its own.

A record is a length, attributes, timestamp and offset deltas, key, value and headers, its integers as zigzag
varints (Kafka's protocol guide, section "Record"). Small varints come from a table, as they are most of it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from crc32c import crc32c

from .compression import DECOMPRESSED_BYTES_MAX, Compression, compress, decompress
from .errors import ErrorCode, KafkaError
from .primitives import Buffer, MalformedMessage, read_varlong, zigzag
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
    parse_header,
)

NO_COMMIT_INDEX: Final = -1
CONTROL_BATCH_BYTES_MAX: Final = 64 << 10
"""A marker is much smaller."""

Header = tuple[str, bytes | None]
Headers = Sequence[Header]
NewRecord = tuple[bytes | None, bytes | None, int] | tuple[bytes | None, bytes | None, int, Headers]
"""Key, value, timestamp in ms since 1970, and perhaps headers."""

_HEAD: Final = struct.Struct(">qiibI")
_BODY: Final = struct.Struct(">hiqqqhii")
_CONTROL_KEY: Final = struct.Struct(">hh")
_CONTROL_VALUE: Final = struct.Struct(">hi")
_COMMIT_INDEX: Final = struct.Struct(">q")
_NULL: Final = zigzag(-1)
_ZIGZAG: Final = tuple(zigzag(value) for value in range(4096))
_TABLE_SIZE: Final = len(_ZIGZAG)


class Record(NamedTuple):
    """A record as it stands in a batch. The timestamp is the producer's, in ms since 1970."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class ControlType(IntEnum):
    """What a control record says (KIP-98)."""

    ABORT = 0
    COMMIT = 1


class ControlRecord(NamedTuple):
    """The end of a transaction on this partition."""

    type: ControlType
    number: int
    """Of the transaction, among those of its transactional id; in the place of Kafka's coordinator epoch."""
    commit_index: int = NO_COMMIT_INDEX
    """Its place in the order in which transactions were decided. Clients pass it over; Kafka's markers have none."""


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
    """One batch with base offset 0 and leader epoch -1, as a producer sends it; `records` are one or more."""
    attributes = compression | (TRANSACTIONAL_FLAG if transactional else 0)
    parts, count, first_ms, last_ms = _encode_records(records)
    body = b"".join(parts)
    if compression:
        body = compress(compression, body, compression_level)
    return _seal(attributes, count, first_ms, last_ms, producer_id, producer_epoch, base_sequence, body)


def recompressed(
    batch: Buffer, codec: Compression, level: int | None = None, bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> bytearray:
    """The batch that `batch` is, its records compressed by `codec` and otherwise the same, with a new CRC.

    Raises:
        KafkaError: CORRUPT_MESSAGE where it is damaged or expands to more than `bytes_max` bytes;
            UNSUPPORTED_COMPRESSION_TYPE.
    """
    header = parse_header(batch)
    records = decompress(header.compression, memoryview(batch)[HEADER_SIZE : header.size], bytes_max)
    body = compress(codec, records, level)
    fields = _BODY.pack(header.attributes & ~COMPRESSION_MASK | codec, *header[6:])
    crc = crc32c(body, crc32c(fields))
    length = HEADER_SIZE - LOG_OVERHEAD + len(body)
    head = _HEAD.pack(header.base_offset, length, header.partition_leader_epoch, MAGIC, crc)
    return bytearray().join((head, fields, body))


def encode_control_batch(
    record: ControlRecord, *, timestamp_ms: int, producer_id: int, producer_epoch: int
) -> bytes:
    """A transaction marker: a batch of one control record."""
    key = _CONTROL_KEY.pack(0, record.type)
    value = _CONTROL_VALUE.pack(0, record.number) + _COMMIT_INDEX.pack(record.commit_index)
    parts, count, first_ms, last_ms = _encode_records([(key, value, timestamp_ms)])
    attributes = TRANSACTIONAL_FLAG | CONTROL_FLAG
    body = b"".join(parts)
    return _seal(attributes, count, first_ms, last_ms, producer_id, producer_epoch, NO_SEQUENCE, body)


def decode_control_record(record: Record) -> ControlRecord | None:
    """What a record of a control batch says; None for types that we do not know, which are to be skipped.

    Raises:
        KafkaError: CORRUPT_MESSAGE if its key or value is too short.
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
    """What the control batch that `batch` begins with says, by its first record; its CRC is not checked. None if it
    says what we do not know, which is to be skipped, or has no record left.

    Raises:
        KafkaError: CORRUPT_MESSAGE if it is damaged or cut short.
    """
    if parse_header(batch).size > CONTROL_BATCH_BYTES_MAX:
        return None
    for record in decode_records(batch, CONTROL_BATCH_BYTES_MAX):
        return decode_control_record(record)
    return None


def decode_records(batch: Buffer, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> Iterator[Record]:
    """The records of the batch that `batch` begins with; its CRC is not checked.

    Raises:
        KafkaError: CORRUPT_MESSAGE where the batch is damaged or expands to more than `bytes_max` bytes;
            UNSUPPORTED_COMPRESSION_TYPE.
    """
    header = parse_header(batch)
    if header.magic != MAGIC or not HEADER_SIZE <= header.size <= len(batch):
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"a batch of magic {header.magic} claims {header.size} bytes, {len(batch)} are there",
        )
    body = decompress(header.compression, memoryview(batch)[HEADER_SIZE : header.size], bytes_max)
    return _decode_records(body, header.record_count, header.base_offset, header.base_timestamp)


def _encode_records(records: Iterable[NewRecord]) -> tuple[list[bytes], int, int, int]:
    """Parts to join, number of records, first and highest timestamp."""
    parts: list[bytes] = []
    table, limit = _ZIGZAG, _TABLE_SIZE
    first_ms = last_ms = delta = 0
    for delta, record in enumerate(records):
        headers = b"\0"
        if len(record) == 3:
            key, value, timestamp_ms = record
        else:
            key, value, timestamp_ms, named = record
            if named:
                headers = _encode_headers(named)
        if delta == 0:
            first_ms = last_ms = timestamp_ms
        elif timestamp_ms > last_ms:
            last_ms = timestamp_ms
        later_ms = timestamp_ms - first_ms
        time = table[later_ms] if 0 <= later_ms < limit else zigzag(later_ms)
        offset = table[delta] if delta < limit else zigzag(delta)
        if key is None:
            key_size, key = _NULL, b""
        else:
            size = len(key)
            key_size = table[size] if size < limit else zigzag(size)
        if value is None:
            value_size, value = _NULL, b""
        else:
            size = len(value)
            value_size = table[size] if size < limit else zigzag(size)
        size = (
            1
            + len(time)
            + len(offset)
            + len(key_size)
            + len(key)
            + len(value_size)
            + len(value)
            + len(headers)
        )
        prefix = table[size] if size < limit else zigzag(size)
        parts += (prefix, b"\0", time, offset, key_size, key, value_size, value, headers)
    if not parts:
        raise ValueError("a batch holds one record or more")
    return parts, delta + 1, first_ms, last_ms


def _encode_headers(headers: Headers) -> bytes:
    parts = [zigzag(len(headers))]
    for name, value in headers:
        encoded = name.encode()
        parts += (zigzag(len(encoded)), encoded)
        parts += (_NULL,) if value is None else (zigzag(len(value)), value)
    return b"".join(parts)


def _seal(
    attributes: int,
    count: int,
    first_ms: int,
    last_ms: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    body: bytes,
) -> bytes:
    """Header, with CRC, and body."""
    fields = _BODY.pack(
        attributes, count - 1, first_ms, last_ms, producer_id, producer_epoch, base_sequence, count
    )
    crc = crc32c(body, crc32c(fields))
    return b"".join((_HEAD.pack(0, HEADER_SIZE - LOG_OVERHEAD + len(body), -1, MAGIC, crc), fields, body))


def _decode_records(data: bytes, count: int, base_offset: int, base_ms: int) -> Iterator[Record]:
    if not 0 <= count <= len(data):
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{count} records in {len(data)} bytes")
    make, cls = tuple.__new__, Record
    position, end = 0, len(data)
    try:
        for _ in range(count):
            # Each varint is read in line while it is one byte, as calls would take most of the time.
            size = data[position]
            if size < 0x80:
                size, position = (size >> 1) ^ -(size & 1), position + 1
            else:
                size, position = read_varlong(data, position)
            stop = position + size
            position += 1  # attributes, unused
            later_ms = data[position]
            if later_ms < 0x80:
                later_ms, position = (later_ms >> 1) ^ -(later_ms & 1), position + 1
            else:
                later_ms, position = read_varlong(data, position)
            delta = data[position]
            if delta < 0x80:
                delta, position = (delta >> 1) ^ -(delta & 1), position + 1
            else:
                delta, position = read_varlong(data, position)
            key, position = _read_bytes(data, position, end)
            value, position = _read_bytes(data, position, end)
            headers: Headers = ()
            if data[position]:
                headers, position = _read_headers(data, position, end)
            else:
                position += 1
            if position != stop:
                raise MalformedMessage(f"a record claims to end at {stop}, it ends at {position}")
            yield make(cls, (base_offset + delta, base_ms + later_ms, key, value, headers))
    except (IndexError, MalformedMessage, UnicodeDecodeError) as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"a record is damaged: {error}") from error
    if position != end:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{end - position} bytes follow the last record")


def _read_bytes(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    size = data[position]
    if size < 0x80:
        size, position = (size >> 1) ^ -(size & 1), position + 1
    else:
        size, position = read_varlong(data, position)
    if size < 0:
        return None, position
    stop = position + size
    if stop > end:
        raise MalformedMessage(f"a length of {size}, {end - position} bytes are left")
    return data[position:stop], stop


def _read_headers(data: bytes, position: int, end: int) -> tuple[Headers, int]:
    count, position = read_varlong(data, position)
    if not 0 <= count <= end - position:
        raise MalformedMessage(f"{count} headers, {end - position} bytes are left")
    headers: list[Header] = []
    for _ in range(count):
        name, position = _read_bytes(data, position, end)
        if name is None:
            raise MalformedMessage("a header without a name")
        value, position = _read_bytes(data, position, end)
        headers.append((str(name, "utf-8"), value))
    return headers, position

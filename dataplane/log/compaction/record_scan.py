"""Records of a batch as spans of bytes (a record's start, end, time, offset and key), so that compaction keeps or drops
them without decoding them.

A record that stays is copied unchanged. So only its length, timestamp delta, offset delta and key are read, and whether
it has a value. Its headers and value are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.records.compression import DECOMPRESSED_BYTES_MAX, decompress
from ....protocol.records.record_batch import HEADER_SIZE, BatchHeader
from ....protocol.wire.primitives import INT64_END, Buffer, MalformedMessage, read_varlong

Span = tuple[int, int, int, int, int, bytes | None, bool]
"""A record's start (at its length), the start of its fields after the length, its end, timestamp delta in ms, offset
delta, key, and whether it has a value."""


def records_of(batch: Buffer, header: BatchHeader, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """Return the records of a batch, uncompressed.

    Raises KafkaError: CORRUPT_MESSAGE, UNSUPPORTED_COMPRESSION_TYPE.
    """
    return decompress(header.compression, memoryview(batch)[HEADER_SIZE : header.size], bytes_max)


def scan(body: bytes, count: int) -> Iterator[Span]:
    """Yield the span of each of `count` uncompressed records: its byte range, timestamp and offset deltas, key, and
    whether it has a value. Raises KafkaError: CORRUPT_MESSAGE if the records do not fill `body`."""
    position, end = 0, len(body)
    try:
        for _ in range(count):
            start = position
            # One-byte varints are read inline, since function calls would take most of the time.
            size = body[position]
            if size < 0x80:
                size, position = (size >> 1) ^ -(size & 1), position + 1
            else:
                size, position = read_varlong(body, position)
            fields, stop = position, position + size
            if size < 0 or stop > end:
                raise MalformedMessage(f"a record of {size} bytes, {end - position} are left")
            position += 1  # attributes, unused
            later_ms = body[position]
            if later_ms < 0x80:
                later_ms, position = (later_ms >> 1) ^ -(later_ms & 1), position + 1
            else:
                later_ms, position = read_varlong(body, position)
            delta = body[position]
            if delta < 0x80:
                delta, position = (delta >> 1) ^ -(delta & 1), position + 1
            else:
                delta, position = read_varlong(body, position)
            length = body[position]
            if length < 0x80:
                length, position = (length >> 1) ^ -(length & 1), position + 1
            else:
                length, position = read_varlong(body, position)
            key = None
            if length >= 0:
                key = body[position : position + length]
                position += length
            if position >= stop:
                raise MalformedMessage("a record ends within its key")
            # The zigzag of -1 is 1, and no other length has that byte.
            yield start, fields, stop, later_ms, delta, key, body[position] != 1
            position = stop
    except (IndexError, MalformedMessage) as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"a record is damaged: {error}") from error
    if position != end:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{end - position} bytes follow the last record")


def readable_records(batch: Buffer, header: BatchHeader) -> tuple[bytes, list[Span]]:
    """Return the uncompressed records of a batch and the span of each. Either all records are used, or none.

    Raises KafkaError as `records_of` and `scan` do; CORRUPT_MESSAGE if offsets or times cannot belong to the batch.
    """
    body = records_of(batch, header)
    spans = list(scan(body, header.record_count))
    below, last, base_ms = -1, header.last_offset_delta, header.base_timestamp
    for _, _, _, later_ms, delta, _, _ in spans:
        if not below < delta <= last or not -INT64_END <= base_ms + later_ms < INT64_END:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE, f"a record is {delta} offsets and {later_ms} ms from its batch's"
            )
        below = delta
    if len(spans) != header.record_count:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"a batch of {header.record_count} records")
    return body, spans

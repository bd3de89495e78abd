"""The header of a record batch, format v2: functions to parse, walk, validate, and patch it in place.

No function here reads a record. The records of a produced batch are checked once, in `produced_batch.py`; on their way
from the socket to the file their bytes are never copied or decoded. Kafka's protocol guide specifies the layout in its
section "Record Batch".
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from ..checksum import crc32c
from ..errors import ErrorCode, KafkaError

HEADER_SIZE: Final = 61
LOG_OVERHEAD: Final = 12
"""Number of bytes that the batch length does not count: base offset and batch length."""
MAGIC: Final = 2
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_TIMESTAMP: Final = -1

COMPRESSION_MASK: Final = 0x07
HIGHEST_COMPRESSION: Final = 4
LOG_APPEND_TIME_FLAG: Final = 0x08
TRANSACTIONAL_FLAG: Final = 0x10
CONTROL_FLAG: Final = 0x20
DELETE_HORIZON_FLAG: Final = 0x40

_HEADER = struct.Struct(">qiibIhiqqqhii")
_LENGTH = struct.Struct(">i")
_OFFSET = struct.Struct(">q")
_PLACE = struct.Struct(">qii")
"""Layout of base offset, batch length and leader epoch."""
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_LEADER_EPOCH_AT = 12
CRC_AT: Final = 17
ATTRIBUTES_AT: Final = 21
"""Position of the first byte that the CRC covers."""
_MAX_TIMESTAMP_AT = 35
_LOWEST_BATCH_LENGTH = HEADER_SIZE - LOG_OVERHEAD

Buffer = bytes | bytearray | memoryview


class BatchHeader(NamedTuple):
    """The 13 fields of a record batch's header (format v2), in wire order."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Size of the whole batch in bytes, header included."""
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Offset after the batch's last record."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequence number of the batch's last record; -1 if the producer is not idempotent. Sequences wrap from 2^31 -
        1 to 0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def compression(self) -> int:
        """Compression type: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & COMPRESSION_MASK

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME_FLAG)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_FLAG)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_FLAG)

    @property
    def latest_known_ms(self) -> int:
        """Largest timestamp that the header reveals; -1 if there is none.

        Some producers did not fill in the largest timestamp, and brokers stored their batches so. Then the timestamp of
        the first record is used.
        """
        if self.max_timestamp >= 0 or self.attributes & DELETE_HORIZON_FLAG:
            return self.max_timestamp
        return max(self.base_timestamp, NO_TIMESTAMP)

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id != NO_PRODUCER_ID

    @property
    def has_delete_horizon(self) -> bool:
        """True if the base timestamp is the time until which the tombstones of this batch remain (KIP-534)."""
        return bool(self.attributes & DELETE_HORIZON_FLAG)


def parse_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Read the header at `position`, without validation.

    Raises KafkaError: CORRUPT_MESSAGE if fewer than 61 bytes remain.
    """
    try:
        return BatchHeader._make(_HEADER.unpack_from(buffer, position))
    except struct.error:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"a record batch needs {HEADER_SIZE} header bytes, {max(0, len(buffer) - position)} are left",
        ) from None


def walk_batches(buffer: Buffer, *, partial_tail: bool = False) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) for each batch of `buffer`, checking only that sizes fit.

    With `partial_tail` an incomplete last batch ends the walk silently, as in answers to a consumer.

    Raises KafkaError: CORRUPT_MESSAGE where a size cannot be right.
    """
    position, end = 0, len(buffer)
    while position < end:
        if end - position < HEADER_SIZE and partial_tail:
            return
        header = parse_header(buffer, position)
        size = header.batch_length + LOG_OVERHEAD
        if size < HEADER_SIZE:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE,
                f"batch length {header.batch_length} at byte {position} is below {_LOWEST_BATCH_LENGTH}",
            )
        if size > end - position:
            if partial_tail:
                return
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE,
                f"the batch at byte {position} claims {size} bytes, {end - position} are left",
            )
        yield position, header
        position += size


def compute_crc(buffer: Buffer, position: int, size: int) -> int:
    """Compute the CRC-32C of the batch of `size` bytes at `position`: from the attributes to its end."""
    view = buffer if isinstance(buffer, memoryview) else memoryview(buffer)
    return crc32c(view[position + ATTRIBUTES_AT : position + size])


def check_integrity(buffer: Buffer, position: int, header: BatchHeader) -> None:
    """Check magic and CRC, which damage on disk or on the wire would break.

    Raises KafkaError: UNSUPPORTED_FOR_MESSAGE_FORMAT for an older format, CORRUPT_MESSAGE otherwise.
    """
    if header.magic != MAGIC:
        if header.magic in (0, 1):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
                f"record format v{header.magic} is not supported; send format v2 (Kafka clients since 0.11)",
            )
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"record batch magic {header.magic}; 2 is expected")
    computed = compute_crc(buffer, position, header.batch_length + LOG_OVERHEAD)
    if computed != header.crc:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"record batch at offset {header.base_offset} is corrupt: CRC-32C is {computed:#010x}, "
            f"its header says {header.crc:#010x}",
        )


def check_produced(header: BatchHeader) -> None:
    """Check the header fields that a client has to fill in correctly (Kafka's `LogValidator`).

    Raises KafkaError: INVALID_RECORD; UNSUPPORTED_COMPRESSION_TYPE for an unknown compression.
    """
    if header.base_offset != 0:
        raise KafkaError(
            ErrorCode.INVALID_RECORD, f"the base offset of a produced batch is 0, not {header.base_offset}"
        )
    if header.record_count <= 0 or header.last_offset_delta + 1 != header.record_count:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"a batch of {header.record_count} records cannot span {header.last_offset_delta + 1} offsets",
        )
    attributes = header.attributes
    if attributes & CONTROL_FLAG:
        raise KafkaError(ErrorCode.INVALID_RECORD, "clients may not write control records")
    if attributes & COMPRESSION_MASK > HIGHEST_COMPRESSION:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"compression type {attributes & COMPRESSION_MASK} is unknown",
        )
    if header.producer_id != NO_PRODUCER_ID:
        if header.producer_id < 0 or header.producer_epoch < 0 or header.base_sequence < 0:
            raise KafkaError(
                ErrorCode.INVALID_RECORD,
                f"producer id {header.producer_id}, epoch {header.producer_epoch} and sequence "
                f"{header.base_sequence} do not belong together",
            )
    elif attributes & TRANSACTIONAL_FLAG:
        raise KafkaError(ErrorCode.INVALID_RECORD, "a transactional batch needs a producer id")


def validate_produced(buffer: Buffer) -> list[tuple[int, BatchHeader]]:
    """Validate the batches of a client before they are appended: sizes, magic, CRC, header fields.

    Raises KafkaError with the code for the answer to the Produce request; INVALID_RECORD if there is no batch at all.
    """
    batches = []
    for position, header in walk_batches(buffer):
        check_integrity(buffer, position, header)
        check_produced(header)
        batches.append((position, header))
    if not batches:
        raise KafkaError(ErrorCode.INVALID_RECORD, "the produced record set holds no batch")
    return batches


def patch_offset_and_epoch(
    buffer: bytearray | memoryview, position: int, base_offset: int, partition_leader_epoch: int
) -> None:
    """Write the base offset and the partition leader epoch into the header of the batch at `position`. The CRC does not
    cover them."""
    _OFFSET.pack_into(buffer, position, base_offset)
    _LENGTH.pack_into(buffer, position + _LEADER_EPOCH_AT, partition_leader_epoch)


def patch_place(
    buffer: bytearray | memoryview, header: BatchHeader, base_offset: int, partition_leader_epoch: int
) -> None:
    """Write the base offset and the partition leader epoch into the batch at the beginning of the buffer, whose header
    was parsed before."""
    _PLACE.pack_into(buffer, 0, base_offset, header.batch_length, partition_leader_epoch)


def patch_record_tail(
    buffer: bytearray | memoryview, position: int, header: BatchHeader, tail: bytes
) -> None:
    """Write `tail` over the last bytes of the uncompressed batch at `position`, and recompute its CRC."""
    size = header.size
    buffer[position + size - len(tail) : position + size] = tail
    _CRC.pack_into(buffer, position + CRC_AT, compute_crc(buffer, position, size))


def patch_timestamp(
    buffer: bytearray | memoryview,
    position: int,
    header: BatchHeader,
    *,
    log_append_time: bool,
    max_timestamp_ms: int,
) -> None:
    """Write the timestamp type and the largest timestamp into the header of the batch at `position`, and recompute its
    CRC."""
    attributes = header.attributes & ~LOG_APPEND_TIME_FLAG
    if log_append_time:
        attributes |= LOG_APPEND_TIME_FLAG
    _ATTRIBUTES.pack_into(buffer, position + ATTRIBUTES_AT, attributes)
    _OFFSET.pack_into(buffer, position + _MAX_TIMESTAMP_AT, max_timestamp_ms)
    _CRC.pack_into(
        buffer, position + CRC_AT, compute_crc(buffer, position, header.batch_length + LOG_OVERHEAD)
    )


def is_transactional(batch: Buffer) -> bool:
    """Return whether the header of a batch names a transaction; False for a batch that is too short for a header."""
    return len(batch) >= HEADER_SIZE and bool(batch[ATTRIBUTES_AT + 1] & TRANSACTIONAL_FLAG)

"""What a topic's configuration allows a producer to append."""

from __future__ import annotations

from collections.abc import Sequence

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.record_batch import NO_TIMESTAMP, BatchHeader
from .compaction.record_scan import records_of, scan
from .config import LogConfig

_UNCOMPRESSED_BYTES_MAX = 64 << 20


def check_keys(batches: memoryview, parsed: Sequence[tuple[int, BatchHeader]]) -> None:
    """Check that every record has a key: in a compacted topic one without would be lost.

    Raises:
        KafkaError: INVALID_RECORD; CORRUPT_MESSAGE for records that are damaged or expand to over 64 MiB.
    """
    for position, header in parsed:
        batch = batches[position : position + header.size]
        body = records_of(batch, header, _UNCOMPRESSED_BYTES_MAX)
        for number, span in enumerate(scan(body, header.record_count)):
            if span[5] is None:
                raise KafkaError(
                    ErrorCode.INVALID_RECORD,
                    f"record {number} of the batch has no key, which a compacted topic (cleanup.policy) needs",
                )


def check_limits(
    batches: Sequence[tuple[int, BatchHeader]], size: int, config: LogConfig, now_ms: int
) -> None:
    """Check sizes and, by the headers, timestamps.

    Raises:
        KafkaError: RECORD_LIST_TOO_LARGE, MESSAGE_TOO_LARGE, INVALID_TIMESTAMP.
    """
    if size > config.segment_bytes:
        raise KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE, f"{size} bytes exceed segment.bytes={config.segment_bytes}"
        )
    for _, header in batches:
        if header.size > config.max_message_bytes:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"a batch of {header.size} bytes exceeds max.message.bytes={config.max_message_bytes}",
            )
        if config.stamps_at_append or header.max_timestamp == NO_TIMESTAMP:
            continue
        if now_ms - header.base_timestamp > config.message_timestamp_before_max_ms:
            raise KafkaError(
                ErrorCode.INVALID_TIMESTAMP,
                f"timestamp {header.base_timestamp} is more than message.timestamp.before.max.ms="
                f"{config.message_timestamp_before_max_ms} behind the broker's clock",
            )
        if header.max_timestamp - now_ms > config.message_timestamp_after_max_ms:
            raise KafkaError(
                ErrorCode.INVALID_TIMESTAMP,
                f"timestamp {header.max_timestamp} is more than message.timestamp.after.max.ms="
                f"{config.message_timestamp_after_max_ms} ahead of the broker's clock",
            )

"""What a topic's configuration allows a producer to append."""

from __future__ import annotations

from collections.abc import Sequence

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.record_batch import NO_TIMESTAMP, BatchHeader
from .config import LogConfig


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

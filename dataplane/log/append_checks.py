"""What a topic's configuration allows a producer to append."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.record_batch import NO_TIMESTAMP, BatchHeader
from .compaction.record_scan import Span, records_of, scan
from .config import LogConfig

_UNCOMPRESSED_BYTES_MAX = 64 << 20
_NAMED_MAX = 1000
"""Records that are named in one refusal; a batch may hold millions."""
_EVER_MS = 2**63 - 1


class RefusedRecords(KafkaError):
    """A batch is refused for some of its records: their positions in the batch, and what is wrong with each."""

    def __init__(self, code: ErrorCode, message: str, records: Sequence[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.records = records[:_NAMED_MAX]


def check_keys(batches: memoryview, parsed: Sequence[tuple[int, BatchHeader]]) -> None:
    """Check that every record has a key: in a compacted topic one without would be lost.

    Raises:
        KafkaError: INVALID_RECORD; CORRUPT_MESSAGE for records that are damaged or expand to over 64 MiB.
    """
    for position, header in parsed:
        without = [
            (number, "it has no key")
            for number, span in _records(batches, position, header)
            if span[5] is None
        ]
        if without:
            raise RefusedRecords(
                ErrorCode.INVALID_RECORD,
                f"{len(without)} records have no key, which a compacted topic (cleanup.policy) needs",
                without,
            )


def _records(batches: memoryview, position: int, header: BatchHeader) -> Iterator[tuple[int, Span]]:
    body = records_of(batches[position : position + header.size], header, _UNCOMPRESSED_BYTES_MAX)
    return enumerate(scan(body, header.record_count))


def check_timestamps(
    batches: memoryview, parsed: Sequence[tuple[int, BatchHeader]], config: LogConfig, now_ms: int
) -> None:
    """Check that producers' timestamps are within the topic's bounds.

    Headers tell the largest timestamp and not the smallest: records are looked at only if a topic bounds that, or
    to name those that are refused.

    Raises:
        KafkaError: INVALID_TIMESTAMP; CORRUPT_MESSAGE for records that are damaged or expand to over 64 MiB.
    """
    if config.stamps_at_append:
        return
    before_ms, after_ms = config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms
    latest_ms = now_ms + after_ms
    for position, header in parsed:
        if header.max_timestamp == NO_TIMESTAMP or (
            header.max_timestamp <= latest_ms and before_ms == _EVER_MS
        ):
            continue
        refused = []
        for number, span in _records(batches, position, header):
            timestamp = header.base_timestamp + span[3]
            if timestamp > latest_ms:
                refused.append(
                    (number, f"{timestamp} is over message.timestamp.after.max.ms={after_ms} ahead")
                )
            elif timestamp < now_ms - before_ms and timestamp != NO_TIMESTAMP:
                refused.append(
                    (number, f"{timestamp} is over message.timestamp.before.max.ms={before_ms} old")
                )
        if refused or header.max_timestamp > latest_ms:
            raise RefusedRecords(
                ErrorCode.INVALID_TIMESTAMP,
                f"timestamps of {len(refused) or 'all'} records are out of bounds",
                refused,
            )


def check_limits(batches: Sequence[tuple[int, BatchHeader]], size: int, config: LogConfig) -> None:
    """Check sizes.

    Raises:
        KafkaError: MESSAGE_TOO_LARGE first, upon which alone some producers split a batch (KIP-126); then
            RECORD_LIST_TOO_LARGE.
    """
    for _, header in batches:
        if header.size > config.max_message_bytes:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"a batch of {header.size} bytes exceeds max.message.bytes={config.max_message_bytes}",
            )
    if size > config.segment_bytes:
        raise KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE, f"{size} bytes exceed segment.bytes={config.segment_bytes}"
        )

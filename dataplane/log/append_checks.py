"""What a topic's configuration allows a producer to append."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.records.compression import DECOMPRESSED_BYTES_MAX
from ...protocol.records.produced_batch import (
    BrokenRules,
    ExpandsTooFar,
    walk_records,
)
from ...protocol.records.record_batch import BatchHeader
from .config import LogConfig

EXPANDED_ON_LOOP_MAX = 256 << 10
"""So many bytes of compressed records are gone over on the event loop: less than 1 ms with every codec."""
_EVER_MS = 2**63 - 1


class RefusedRecords(KafkaError):
    """A batch is refused for some of its records: their positions in the batch, and what is wrong with each."""

    def __init__(self, code: ErrorCode, message: str, records: Sequence[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.records = records


class TakesLong(KafkaError):
    """A batch expands further than is gone over on the event loop. Where nobody moves it to a thread, its producer is
    to send it again.
    """

    def __init__(self) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, "the batch takes long to validate")


class ProducedRules(NamedTuple):
    """What a topic's configuration says of produced records, worked out once and not for each of them."""

    stamps: bool
    keyed: bool
    before_max_ms: int
    after_max_ms: int

    @classmethod
    def of(cls, config: LogConfig) -> ProducedRules:
        """Those of a topic."""
        return cls(
            config.stamps_at_append,
            config.compacted,
            config.message_timestamp_before_max_ms,
            config.message_timestamp_after_max_ms,
        )

    def times_at(self, now_ms: int) -> tuple[int, int]:
        """The earliest and the latest timestamp that producers may give."""
        if self.stamps:
            return -_EVER_MS, _EVER_MS
        return max(-_EVER_MS, now_ms - self.before_max_ms), min(_EVER_MS, now_ms + self.after_max_ms)


def check_records(
    batch: memoryview,
    header: BatchHeader,
    config: LogConfig,
    now_ms: int,
    expanded_bytes_max: int = DECOMPRESSED_BYTES_MAX,
    expanded: list[bytes] | None = None,
) -> int:
    """Check every record of a batch whose header and CRC are right, as Kafka's `LogValidator` does: its form, its key
    where the topic is compacted (one without would be lost), its timestamp where producers stamp. Returns the largest
    timestamp, -1 if no record has one. `expanded` takes the records where they were compressed.

    Raises KafkaError: INVALID_RECORD, INVALID_TIMESTAMP, UNSUPPORTED_COMPRESSION_TYPE. Raises ExpandsTooFar if they
    expand to more than `expanded_bytes_max` bytes.
    """
    rules = ProducedRules.of(config)
    if rules.stamps and header.is_log_append_time:
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP, "a producer may not say that the broker stamped its records"
        )
    earliest_ms, latest_ms = rules.times_at(now_ms)
    try:
        return walk_records(batch, header, earliest_ms, latest_ms, rules.keyed, expanded_bytes_max, expanded)
    except BrokenRules as broken:
        raise _refusal(broken, latest_ms, config) from None


def check_records_on_loop(batch: memoryview, header: BatchHeader, config: LogConfig, now_ms: int) -> int:
    """`check_records` within what the event loop has time for. Raises KafkaError: TakesLong beyond that."""
    try:
        return check_records(batch, header, config, now_ms, EXPANDED_ON_LOOP_MAX)
    except ExpandsTooFar:
        raise TakesLong from None


def _refusal(broken: BrokenRules, latest_ms: int, config: LogConfig) -> RefusedRecords:
    records = []
    for number, timestamp in broken.refused:
        if timestamp is None:
            reason = "it has no key"
        elif timestamp > latest_ms:
            reason = (
                f"{timestamp} is over message.timestamp.after.max.ms="
                f"{config.message_timestamp_after_max_ms} ahead"
            )
        else:
            reason = (
                f"{timestamp} is over message.timestamp.before.max.ms="
                f"{config.message_timestamp_before_max_ms} old"
            )
        records.append((number, reason))
    if all(timestamp is None for _, timestamp in broken.refused):
        return RefusedRecords(
            ErrorCode.INVALID_RECORD,
            f"{broken.refused_count} records have no key, which a compacted topic (cleanup.policy) needs",
            records,
        )
    return RefusedRecords(
        ErrorCode.INVALID_TIMESTAMP,
        f"{broken.refused_count} records are refused, with timestamps that are out of bounds",
        records,
    )


def check_limits(batches: Sequence[tuple[int, BatchHeader]], size: int, config: LogConfig) -> None:
    """Check sizes.

    Raises KafkaError: MESSAGE_TOO_LARGE first, upon which alone some producers split a batch (KIP-126); then
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

"""Checks of produced batches against the topic's configuration."""

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
"""The most bytes of compressed records that are checked on the event loop: less than 1 ms with every codec."""
_EVER_MS = 2**63 - 1


class RefusedRecords(KafkaError):
    """The error for a batch that is refused because of some of its records. `records` has pairs of a record's position
    in the batch and its fault."""

    def __init__(self, code: ErrorCode, message: str, records: Sequence[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.records = records


class TakesLong(KafkaError):
    """The error for a batch whose records expand too far to be checked on the event loop.

    The caller has it checked in a thread. Otherwise its producer gets REQUEST_TIMED_OUT, and must send it again.
    """

    def __init__(self) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, "the batch takes long to validate")


class ProducedRules(NamedTuple):
    """A topic's rules for produced records: whether the log sets their timestamps, whether they need a key, and by how
    many ms a timestamp may differ from the clock.

    They are computed once, not for each record.
    """

    stamps: bool
    keyed: bool
    before_max_ms: int
    after_max_ms: int

    @classmethod
    def of(cls, config: LogConfig) -> ProducedRules:
        """Return the rules for produced records that a topic's log settings contain."""
        return cls(
            config.stamps_at_append,
            config.compacted,
            config.message_timestamp_before_max_ms,
            config.message_timestamp_after_max_ms,
        )

    def times_at(self, now_ms: int) -> tuple[int, int]:
        """Return the earliest and the latest timestamp, in ms, that producers may send at the time `now_ms`."""
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
    """Check every record of a batch whose header and CRC are right, as Kafka's `LogValidator` does.

    Checked are a record's format, its key if the topic is compacted (compaction would remove a record without one), and
    its timestamp if producers set timestamps. Returns the largest timestamp, -1 if no record has one. `expanded`
    receives the records if they were compressed.

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
    """Check like `check_records`, within the limit of the event loop. Raises KafkaError: TakesLong beyond it."""
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
    """Check the sizes of batches.

    Raises KafkaError: MESSAGE_TOO_LARGE first, since some producers split a batch only after this error (KIP-126); then
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

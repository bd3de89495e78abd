"""The path of clients' batches into a log: search for duplicates, checks of the records, and their offsets."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.records.produced_batch import sole_batch
from ...protocol.records.record_batch import (
    LOG_APPEND_TIME_FLAG,
    NO_PRODUCER_ID,
    BatchHeader,
    parse_header,
    validate_produced,
)
from .append_checks import ProducedRules, check_limits, check_records_on_loop
from .open_log import AppendResult
from .placement import place_produced

if TYPE_CHECKING:
    from .open_log import OpenLog
    from .producers.producer_state import ProducedBatch


class ProducedBatches:
    """The appends of clients' batches to a log that this broker leads: duplicates are found, and records are
    validated."""

    __slots__ = ("_config", "_log", "_rules")

    def __init__(self, log: OpenLog) -> None:
        self._log = log
        self._config = log.config
        self._rules = ProducedRules.of(log.config)

    def append(
        self, batches: memoryview, leader_epoch: int, now_ms: int, max_timestamp: int | None = None
    ) -> AppendResult:
        """Validate a client's batches, assign offsets in place, and append them.

        `batches` is patched (offsets, leader epoch, perhaps timestamps); no byte is copied. With `max_timestamp` it is
        one batch that was validated before, and `max_timestamp` is the largest timestamp of its records.

        Raises TakesLong if its records expand beyond the limit of the event loop. Raises KafkaError with the code for
        the client. Nothing was appended.
        """
        log = self._log
        log.check_usable()
        config = log.config
        if config is not self._config:
            self._config, self._rules = config, ProducedRules.of(config)
        if max_timestamp is None:
            result = self._append_single(batches, leader_epoch, now_ms)
            if result is not None:
                return result
        parsed = validate_produced(batches) if max_timestamp is None else [(0, parse_header(batches))]
        # Duplicates first: a batch that is in the log already is acknowledged, even if it would be refused now.
        if parsed[0][1].producer_id != NO_PRODUCER_ID:
            if len(parsed) > 1:
                raise KafkaError(ErrorCode.INVALID_RECORD, "an idempotent producer sends one batch at a time")
            original = self._original_of(parsed[0][1])
            if original is not None:
                return original
        check_limits(parsed, len(batches), config)
        largest = (
            [check_records_on_loop(batches[position:], header, config, now_ms) for position, header in parsed]
            if max_timestamp is None
            else [max_timestamp]
        )
        placement = place_produced(batches, parsed, config, log.log_end_offset, leader_epoch, now_ms, largest)
        try:
            return log.append_placed(batches, placement, leader_epoch, now_ms)
        except KafkaError as error:
            log.producers.will_come_again(parsed[0][1], error.code)
            raise

    def _append_single(self, batch: memoryview, leader_epoch: int, now_ms: int) -> AppendResult | None:
        """Append a single sound batch of which only the offset and the epoch have to be patched, which is the usual
        case. The checks and their order are those of `append`, at a part of the cost.

        Returns None in all other cases; nothing was appended then.
        """
        rules = self._rules
        earliest_ms, latest_ms = rules.times_at(now_ms)
        found = sole_batch(batch, earliest_ms, latest_ms, rules.keyed)
        if found is None:
            return None
        header, max_timestamp = found
        if header.producer_id != NO_PRODUCER_ID:
            original = self._log.producers.original_of(header)
            if original is not None:
                return self._as_result(original)
        config, size = self._config, len(batch)
        if rules.stamps or size > config.max_message_bytes or size > config.segment_bytes:
            return None
        if max_timestamp is None:
            max_timestamp = check_records_on_loop(batch, header, config, now_ms)
        if max_timestamp != header.max_timestamp or header.attributes & LOG_APPEND_TIME_FLAG:
            return None
        try:
            return self._log.append_single(batch, header, leader_epoch, now_ms)
        except KafkaError as error:
            self._log.producers.will_come_again(header, error.code)
            raise

    def has(self, batches: bytearray | memoryview) -> bool:
        """Return whether the log has a batch already, judged by its header. Callers must ask before they refuse a batch
        for any reason: clients take most refusals as proof that nothing was appended."""
        with suppress(KafkaError):
            return self._log.producers.is_duplicate(parse_header(batches))
        return False

    def original_of(self, batches: memoryview) -> AppendResult | None:
        """Return the position of a batch that is in the log already, or None.

        Raises KafkaError: UNKNOWN_PRODUCER_ID if its transaction has ended; the errors of `validate_produced` for a
        damaged batch.
        """
        if not self.has(batches):
            return None
        self._log.check_usable()
        ((_, header),) = validate_produced(batches)
        return self._original_of(header)

    def _original_of(self, header: BatchHeader) -> AppendResult | None:
        original = self._log.producers.original_of(header)
        return None if original is None else self._as_result(original)

    def _as_result(self, original: ProducedBatch) -> AppendResult:
        stamp = original.timestamp if self._log.config.stamps_at_append else -1
        return AppendResult(original.first_offset, original.last_offset, stamp, original.timestamp, 0, True)

    def refused_for_now(self, batches: memoryview, code: ErrorCode) -> None:
        """Note a client's batch that was refused with this error, but will be sent again. Later batches of its producer
        must not overtake it, and get the same error. Damaged or forbidden batches are not noted, since their headers
        cannot be relied on."""
        with suppress(KafkaError):
            parsed = validate_produced(batches)
            if len(parsed) == 1:
                self._log.producers.will_come_again(parsed[0][1], code)

"""One partition's log: appended at its end, read anywhere, cut and flushed.

Everything but ``open`` and ``flush`` is called from one thread, the event loop's; ``flush`` may run in
another at the same time. Invariant: log start offset <= log end offset; recovery point <= log end offset.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple
from zlib import crc32

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.record import ControlRecord, ControlType, encode_control_batch
from ...protocol.record_batch import (
    NO_PRODUCER_ID,
    BatchHeader,
    parse_header,
    validate_produced,
    walk_batches,
)
from .append_checks import check_limits, check_records_on_loop
from .placement import Placement, must_roll, place_fetched, place_produced
from .segments.log_slice import LogSlice
from .storage_errors import DISK_FULL, disk_error, is_unreadable
from .timestamps import TimestampOffset, find_timestamp, largest_timestamp
from .transactional_log import TransactionalLog

logger = logging.getLogger(__name__)

OnFailure = Callable[[KafkaError], None]


class AppendResult(NamedTuple):
    """What an append did; offsets and times are those of the original if it was a duplicate."""

    first_offset: int
    last_offset: int
    append_time_ms: int
    """When the log stamped the records; -1 if their producer did."""
    max_timestamp: int
    size: int
    """Bytes appended; 0 for a duplicate."""
    duplicate: bool


class PartitionLog(TransactionalLog):
    """See the module; opened with ``open``, closed with ``close``."""

    # Appending

    def append_as_leader(
        self, batches: memoryview, leader_epoch: int, now_ms: int, max_timestamp: int | None = None
    ) -> AppendResult:
        """Validate what a client produced, assign offsets in place, and append.

        ``batches`` is patched (offsets, leader epoch, perhaps timestamps); no byte is copied. With ``max_timestamp`` it
        is one batch that was validated before, and that is the largest timestamp of its records.

        Raises:
            TakesLong: its records expand further than is gone over here.
            KafkaError: the code that answers the client. Nothing was appended.
        """
        self._check_usable()
        config = self.config
        parsed = validate_produced(batches) if max_timestamp is None else [(0, parse_header(batches))]
        # Duplicates first: what is in the log already is acknowledged, however clock and configuration have changed.
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
        placement = place_produced(
            batches, parsed, config, self.log_end_offset, leader_epoch, now_ms, largest
        )
        return self._append_placed(batches, placement, leader_epoch, now_ms)

    def has(self, batches: bytearray | memoryview) -> bool:
        """Whether the log has a batch already, as far as its header tells. To be asked before anything that would
        refuse it: clients take most refusals for a proof that nothing was appended."""
        with suppress(KafkaError):
            return self.producers.is_duplicate(parse_header(batches))
        return False

    def original_of(self, batches: memoryview) -> AppendResult | None:
        """Where in the log a batch is, None if it is not there.

        Raises:
            KafkaError: UNKNOWN_PRODUCER_ID if its transaction has ended; what a damaged batch is answered with.
        """
        if not self.has(batches):
            return None
        self._check_usable()
        ((_, header),) = validate_produced(batches)
        return self._original_of(header)

    def _original_of(self, header: BatchHeader) -> AppendResult | None:
        original = self.producers.original_of(header)
        if original is None:
            return None
        stamp = original.timestamp if self.config.stamps_at_append else -1
        return AppendResult(original.first_offset, original.last_offset, stamp, original.timestamp, 0, True)

    def append_unsequenced(self, batches: memoryview, leader_epoch: int, now_ms: int) -> AppendResult:
        """As leader, append what this broker has composed itself: no producer's sequence is looked at, nor what the
        topic's configuration allows. So go the offsets that are committed in a transaction.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR; nothing was appended.
        """
        self._check_usable()
        parsed = list(walk_batches(batches))
        placement = place_produced(batches, parsed, self.config, self.log_end_offset, leader_epoch, now_ms)
        return self._append_placed(batches, placement, leader_epoch, now_ms)

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        commit: bool,
        number: int,
        commit_index: int,
        leader_epoch: int,
        now_ms: int,
    ) -> AppendResult:
        """As leader, append the marker that ends a producer's transaction; who may do so has been decided.

        ``number`` is the transaction's; with `NO_NUMBER` the one that the log has of the producer stays.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR; nothing was appended.
        """
        self._check_usable()
        marker = ControlRecord(ControlType.COMMIT if commit else ControlType.ABORT, number, commit_index)
        batch = encode_control_batch(
            marker, timestamp_ms=now_ms, producer_id=producer_id, producer_epoch=producer_epoch
        )
        with memoryview(bytearray(batch)) as view:
            parsed = [(0, parse_header(view))]
            placement = place_produced(view, parsed, self.config, self.log_end_offset, leader_epoch, now_ms)
            placement.batches[0] = placement.batches[0]._replace(marker=marker)
            return self._append_placed(view, placement, leader_epoch, now_ms)

    def _append_placed(
        self, batches: memoryview, placement: Placement, leader_epoch: int, now_ms: int
    ) -> AppendResult:
        first_offset = self.log_end_offset
        max_timestamp = self._append(batches, placement, now_ms)
        if leader_epoch > self.leader_epochs.latest_epoch:
            self.leader_epochs.assign(leader_epoch, first_offset)
        return AppendResult(
            first_offset,
            self.log_end_offset - 1,
            now_ms if self.config.stamps_at_append else -1,
            max_timestamp,
            len(batches),
            False,
        )

    def refused_for_now(self, batches: memoryview) -> None:
        """What a client produced is not appended yet, but will be sent again: what it produces behind that must not
        overtake it. Damaged or forbidden batches say nothing that could be relied on, and are not remembered.
        """
        with suppress(KafkaError):
            parsed = validate_produced(batches)
            if len(parsed) == 1:
                self.producers.will_come_again(parsed[0][1])

    def append_as_follower(
        self, batches: memoryview, now_ms: int, leader_epoch: int | None = None
    ) -> AppendResult:
        """Append what the leader sent, byte for byte: offsets and epochs are as in the batches, none above
        ``leader_epoch``, that of the leader.

        A log that starts, empty, within the first of them begins with that: it can have the batch only as a
        whole (DeleteRecords may have put the leader's log start there).

        Raises:
            KafkaError: CORRUPT_MESSAGE for damaged bytes, INVALID_RECORD if they do not continue at the log
                end; KAFKA_STORAGE_ERROR. Nothing was appended.
        """
        self._check_usable()
        end_offset = self.log_end_offset
        if end_offset == self.log_start_offset and len(batches):
            first = parse_header(batches)
            if first.base_offset < end_offset < first.next_offset:
                end_offset = first.base_offset
        epochs = self.leader_epochs
        placement = place_fetched(batches, self.directory.name, end_offset, epochs.latest_epoch, leader_epoch)
        if not placement.batches:
            return AppendResult(self.log_end_offset, self.log_end_offset - 1, -1, -1, 0, False)
        if end_offset < self.log_end_offset:
            self.truncate_fully_and_start_at(end_offset)
        if placement.has_gaps:
            self._note_gaps()
        max_timestamp = self._append(batches, placement, now_ms)
        for _, base_offset, header, _ in placement.batches:
            if header.partition_leader_epoch > epochs.latest_epoch:
                epochs.assign(header.partition_leader_epoch, base_offset)
        first_offset = placement.batches[0].base_offset
        return AppendResult(first_offset, self.log_end_offset - 1, -1, max_timestamp, len(batches), False)

    def _append(self, batches: memoryview, placement: Placement, now_ms: int) -> int:
        """Write, then note; the max timestamp."""
        size = len(batches)
        if must_roll(self._segments.active, self.config, size, placement, self._roll_jitter_ms(), now_ms):
            self.roll(now_ms)
        segments = self._segments
        segment = segments.active
        start = segment.size
        self._write(batches, start)
        segment.size = start + size
        interval, producers = self.config.index_interval_bytes, self.producers
        for position, offset, header, marker in placement.batches:
            segment.note_batch(header, offset + header.last_offset_delta, start + position, interval)
            if header.producer_id == NO_PRODUCER_ID:
                continue
            if marker is None:
                producers.record(header, offset, now_ms)
            else:
                aborted = producers.record_marker(header, marker, offset, now_ms)
                if aborted is not None:
                    segments.note_abort(aborted)
        self.log_end_offset = placement.next_offset
        segments.note_boundary(placement.next_offset, start + size)
        return placement.max_timestamp

    def _write(self, data: memoryview, position: int) -> None:
        fd, size = self._segments.fd, len(data)
        try:
            written = os.pwrite(fd, data, position)
            while written < size:
                more = os.pwrite(fd, data[written:], position + written)
                if more == 0:
                    raise OSError(errno.EIO, "the disk took no bytes")
                written += more
        except OSError as error:
            failure = disk_error("append to", self._segments.active.path, error)
            self._undo_write(position, error, failure)
            raise failure from error

    def _undo_write(self, position: int, error: OSError, failure: KafkaError) -> None:
        """Cut a partial write. A full disk may have room again later; after any other error the log is
        offline.
        """
        logger.error("%s", failure.message)
        try:
            os.ftruncate(self._segments.fd, position)
        except OSError:
            self._fail(failure)
        if error.errno not in DISK_FULL:
            self._fail(failure)

    # Rolling

    def _roll_jitter_ms(self) -> int:
        """How much earlier than `segment.ms` the active segment is old: spread over all segments alike, so that
        the logs of one start do not all roll at once."""
        most = min(self.config.segment_jitter_ms, self.config.segment_ms)
        if most == 0:
            return 0
        seed = f"{self.directory.name}/{self._segments.active.base_offset}".encode()
        return crc32(seed) % (most + 1)

    # Reading

    def read(self, offset: int, max_bytes: int, upto_offset: int, *, at_least_one: bool) -> LogSlice:
        """Whole batches from the one that holds ``offset``, all below ``upto_offset``, at most ``max_bytes``.

        With ``at_least_one`` the first batch comes even if it is larger. The slice must be released.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE outside log start to log end; KAFKA_STORAGE_ERROR.
        """
        self._check_usable()
        end_offset = self.log_end_offset
        if not self.log_start_offset <= offset <= end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is outside {self.log_start_offset} to {end_offset} of {self!r}",
            )
        upto = min(upto_offset, end_offset)
        if offset >= upto:
            return LogSlice(None, 0, 0, offset)
        try:
            found = self._segments.slice(
                offset,
                upto,
                end_offset,
                max_bytes,
                at_least_one=at_least_one,
                contiguous=self.is_contiguous,
            )
        except KafkaError as error:
            if is_unreadable(error):
                self._fail(error)
            raise
        if found is None:
            return LogSlice(None, 0, 0, offset)
        found.on_failure = self._unreadable
        return found

    def _unreadable(self, error: OSError) -> None:
        failure = disk_error("read", self.directory, error)
        failure.__cause__ = error
        if is_unreadable(failure):
            self._fail(failure)

    def offset_for_timestamp(self, timestamp: int, upto_offset: int) -> TimestampOffset | None:
        """The first record below ``upto_offset`` whose timestamp is at or after ``timestamp`` (ms); None if
        none is.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        self._check_usable()
        found = find_timestamp(self._segments.copy(), timestamp, self.log_start_offset)
        return None if found is None or found.offset >= upto_offset else found

    def max_timestamp_offset(self, upto_offset: int | None = None) -> TimestampOffset | None:
        """The record with the largest timestamp below ``upto_offset`` (None: the log end); None if there is
        none.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        self._check_usable()
        return largest_timestamp(
            self._segments.copy(),
            self.log_end_offset if upto_offset is None else upto_offset,
            self.log_start_offset,
        )

"""A partition's log: it is appended to at its end, read anywhere, truncated and flushed.

All methods but `open` and `flush` are called from one thread, the event loop's. `flush` may run in another thread at
the same time. Invariant: log start offset <= log end offset, and recovery point <= log end offset.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Self

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.records.record_batch import NO_PRODUCER_ID, BatchHeader, parse_header, patch_place
from .config import LogConfig
from .durability import Durability
from .durable_files import sync_file
from .leader_epochs import LeaderEpochs
from .old_segments import OldSegments
from .open_log import AppendResult
from .placement import PlacedBatches, must_roll, place_fetched, roll_jitter_ms, single_fetched
from .produced import ProducedBatches
from .producers.producer_snapshot import write_snapshot
from .producers.producer_state import ProducerStates
from .recovery.clean_log_state import CleanLogState
from .recovery.recovery import OpenRequest, open_folder
from .segments.descriptors import FileCache
from .segments.log_slice import LogSlice
from .segments.segment import Segment
from .segments.segment_list import RESTS, SegmentList
from .storage_errors import DISK_FULL, disk_error, is_unreadable, lacks_resources, may_pass
from .transactions import LogTransactions
from .truncation import Truncation

logger = logging.getLogger(__name__)

OnFailure = Callable[[KafkaError], None]


def _nobody_looks() -> None:
    return


class PartitionLog:
    """A partition's segments, leader epochs and producer state, its start and end offsets, and whether its disk still
    works.

    It is opened with `open` and closed with `close`.
    """

    def __init__(self, request: OpenRequest) -> None:
        self.directory: Path = request.directory
        self.config: LogConfig = request.config
        self.failure: KafkaError | None = None
        """The reason why the log is offline: a disk error after which its content is not certain."""
        self.on_failure: OnFailure | None = None
        """A function that is called once when the log goes offline while in use, in the thread that noticed the
        failure."""
        self.on_lack: OnFailure | None = None
        """A function that is called when a write failed for lack of room, descriptors or memory, in the thread that
        noticed it."""
        self.on_move: Callable[[], object] = _nobody_looks
        """A function that is called after each change of the log's start or end, epochs or files. It must be cheap,
        since each append calls it. It must not read the log yet, since some callers are not finished with their change.
        """
        opened = open_folder(request)
        self.segment_list = SegmentList(
            self.directory,
            request.files,
            opened.segments,
            opened.next_offset,
            has_gaps=opened.has_gaps,
            changed=not opened.is_named,
            doomed=opened.doomed,
        )
        self.log_end_offset = opened.next_offset
        self.log_start_offset = min(
            max(request.log_start_offset, opened.segments[0].base_offset), opened.next_offset
        )
        self.start_moved = self.log_start_offset != request.log_start_offset
        """True if the log start offset differs from the checkpoint. The writer of the checkpoint sets it to False."""
        self.durability = Durability(self.directory, request.recovery_point, is_named=opened.is_named)
        self.leader_epochs: LeaderEpochs = opened.leader_epochs
        self.producers: ProducerStates = opened.producers
        self.produced = ProducedBatches(self)
        """The entrance for batches of clients."""
        self.transactions = LogTransactions(self)
        """The state of the transactions in the log."""
        self.old_segments = OldSegments(self, self.transactions)
        """The oldest segments, and the methods that drop them."""
        self.truncation = Truncation(self, self.durability)
        """The methods that cut off the end of the log."""
        self._settled = self._extent() if opened.is_settled else None
        self.fingerprint = None if request.settled is None else request.settled.fingerprint
        """The fingerprint of the files that the log was opened from, unless the log has been settled in other files
        since."""

    @classmethod
    def open(
        cls,
        directory: Path,
        config: LogConfig,
        *,
        clean_shutdown: bool,
        recovery_point: int,
        now_ms: int,
        log_start_offset: int = 0,
        files: FileCache | None = None,
        settled: CleanLogState | None = None,
        only_process_died: bool = False,
    ) -> Self:
        """Open or create the log in `directory`, and recover it after an unclean stop. With `only_process_died` the
        page cache still has all that was written, so recovery reads headers alone.

        It blocks, unless `settled` is given: the state of these very files that a clean stop recorded. Raises
        KafkaError: KAFKA_STORAGE_ERROR if the folder cannot be read, or is damaged in a part that had been flushed.
        """
        return cls(
            OpenRequest(
                directory,
                config,
                files or FileCache(),
                clean_shutdown,
                recovery_point,
                log_start_offset,
                now_ms,
                settled,
                only_process_died,
            )
        )

    def __repr__(self) -> str:
        return f"<PartitionLog {self.directory.name} [{self.log_start_offset}, {self.log_end_offset})>"

    @property
    def recovery_point(self) -> int:
        """The offset below which all records were flushed."""
        return self.durability.recovery_point

    @property
    def is_contiguous(self) -> bool:
        """True if each batch begins where the batch before ended: the log was never compacted, nor copied from a
        compacted log."""
        return not (self.config.compacted or self.segment_list.has_gaps)

    @property
    def size(self) -> int:
        """The bytes of all segments' log files."""
        return sum(segment.size for segment in self.segment_list)

    @property
    def doomed(self) -> list[Path]:
        """Files that were renamed for deletion. The task that unlinks them, off the event loop, removes them from this
        list."""
        return self.segment_list.doomed

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments from the oldest to the active one, for reading only."""
        return tuple(self.segment_list)

    @property
    def needs_flush(self) -> bool:
        """True if a rolled segment, a new file or an epoch of records still waits for a flush."""
        return (
            self.segment_list.changed
            or self.leader_epochs.lacks_a_save(self.log_end_offset)
            or (
                len(self.segment_list) > 1
                and any(not segment.synced for segment in self.segment_list.copy()[:-1])
            )
        )

    def check(self) -> None:
        """Raise AssertionError if the parts contradict each other. Every segment and producer is checked. An offline
        log always passes."""
        if self.failure is not None:
            return
        start, end = self.log_start_offset, self.log_end_offset
        self.segment_list.check(end)
        if not self.segment_list.first_base <= start <= end:
            raise AssertionError(
                f"{self!r}: first segment {self.segment_list.first_base} <= log start <= log end does not hold"
            )
        if self.recovery_point > end:
            raise AssertionError(f"{self!r}: flushed to {self.recovery_point}, past its end")
        self.leader_epochs.check(start, end)
        self.producers.check(end)

    def _extent(self) -> tuple[int, int, int]:
        """Return the log's first base offset, its end offset and its number of truncations, which differ after any
        change of the records."""
        return self.segment_list.first_base, self.log_end_offset, self.durability.cuts

    @property
    def needs_settling(self) -> bool:
        """True if a clean stop has to write or flush a file of this log. Many partitions are idle, and each flush takes
        time."""
        return self._settled != self._extent() or self.needs_flush

    # Going offline

    def check_usable(self) -> None:
        """Raise KafkaError, KAFKA_STORAGE_ERROR, if the log is offline or closed."""
        if self.failure is not None:
            raise self.failure

    def fail(self, error: KafkaError) -> None:
        """Take the log offline. Nothing happens if it was closed meanwhile, since it has no open files any more."""
        if self.failure is None:
            self.failure = error
            if self.on_failure is not None:
                self.on_failure(error)

    def refused(self, error: KafkaError) -> None:
        """Report a system call that failed under this log. The log goes offline, unless the error may pass."""
        if not may_pass(error):
            self.fail(error)
        elif self.failure is None and self.on_lack is not None:
            self.on_lack(error)

    # Appending

    def append_single(
        self, batch: memoryview, header: BatchHeader, leader_epoch: int, now_ms: int
    ) -> AppendResult:
        """Append, as the leader, one batch of which only the offset and the epoch have to be patched. Raises
        KafkaError: KAFKA_STORAGE_ERROR; nothing was appended."""
        patch_place(batch, header, self.log_end_offset, leader_epoch)
        return self._append_single(batch, header, leader_epoch, now_ms)

    def _append_single(
        self, batch: memoryview, header: BatchHeader, leader_epoch: int, now_ms: int
    ) -> AppendResult:
        """Write one batch of that epoch, not a marker, at the end of the log, then note it."""
        offset, size, max_timestamp = self.log_end_offset, len(batch), header.max_timestamp
        next_offset = offset + header.last_offset_delta + 1
        segment = self._segment_for(size, max_timestamp, next_offset, now_ms)
        position = segment.size
        self._write(batch, position)
        segment.size = position + size
        segment.note_batch(header, next_offset - 1, position, self.config.index_interval_bytes)
        if header.producer_id != NO_PRODUCER_ID:
            self.producers.record(header, offset, now_ms)
        self.log_end_offset = next_offset
        self.segment_list.note_boundary(next_offset, position + size)
        if leader_epoch > self.leader_epochs.latest_epoch:
            self.leader_epochs.assign(leader_epoch, offset)
        self.on_move()
        return AppendResult(offset, next_offset - 1, -1, max_timestamp, size, False)

    def append_placed(
        self, batches: memoryview, placement: PlacedBatches, leader_epoch: int, now_ms: int
    ) -> AppendResult:
        """Append, as the leader, batches that have their offsets. Raises KafkaError: KAFKA_STORAGE_ERROR; nothing was
        appended."""
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

    def append_as_follower(
        self, batches: memoryview, now_ms: int, leader_epoch: int | None = None
    ) -> AppendResult:
        """Append batches of the leader, byte for byte. Offsets and epochs are as in the batches; no epoch is above
        `leader_epoch`, the leader's epoch.

        If the log is empty and starts within the first batch, the log start moves to that batch, which can only be
        stored as a whole. (DeleteRecords may have moved the leader's log start into the batch.)

        Raises KafkaError: CORRUPT_MESSAGE for damaged bytes, INVALID_RECORD if they do not continue at the log end;
        KAFKA_STORAGE_ERROR. Nothing was appended.
        """
        self.check_usable()
        end_offset, epochs = self.log_end_offset, self.leader_epochs
        header = single_fetched(batches, end_offset, epochs.latest_epoch, leader_epoch)
        if header is not None:
            return self._append_single(batches, header, header.partition_leader_epoch, now_ms)
        if end_offset == self.log_start_offset and len(batches):
            first = parse_header(batches)
            if first.base_offset < end_offset < first.next_offset:
                end_offset = first.base_offset
        placement = place_fetched(batches, self.directory.name, end_offset, epochs.latest_epoch, leader_epoch)
        if not placement.batches:
            return AppendResult(self.log_end_offset, self.log_end_offset - 1, -1, -1, 0, False)
        if end_offset < self.log_end_offset:
            self.truncation.truncate_fully_and_start_at(end_offset)
        if placement.has_gaps:
            self.segment_list.note_gaps()
        max_timestamp = self._append(batches, placement, now_ms)
        for _, base_offset, header, _ in placement.batches:
            if header.partition_leader_epoch > epochs.latest_epoch:
                epochs.assign(header.partition_leader_epoch, base_offset)
        first_offset = placement.batches[0].base_offset
        return AppendResult(first_offset, self.log_end_offset - 1, -1, max_timestamp, len(batches), False)

    def _append(self, batches: memoryview, placement: PlacedBatches, now_ms: int) -> int:
        """Write the batches, then note them. Returns the largest timestamp."""
        size, segments, config = len(batches), self.segment_list, self.config
        segment = self._segment_for(size, placement.max_timestamp, placement.next_offset, now_ms)
        start = segment.size
        self._write(batches, start)
        segment.size = start + size
        interval, producers = config.index_interval_bytes, self.producers
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
        self.on_move()
        return placement.max_timestamp

    def _segment_for(self, size: int, max_timestamp: int, next_offset: int, now_ms: int) -> Segment:
        """Return the active segment for `size` bytes that end before `next_offset`, rolled first if it cannot take
        them."""
        segment = self.segment_list.active
        if segment.size == 0:
            return segment
        config = self.config
        jitter_ms = roll_jitter_ms(config, self.directory, segment) if config.segment_jitter_ms else 0
        if must_roll(segment, config, size, max_timestamp, next_offset, jitter_ms, now_ms):
            self.roll(now_ms)
            return self.segment_list.active
        return segment

    def _write(self, data: memoryview, position: int) -> None:
        fd, size = self.segment_list.fd, len(data)
        if fd == RESTS:
            fd = self._woken()
        try:
            written = os.pwrite(fd, data, position)
            while written < size:
                more = os.pwrite(fd, data[written:], position + written)
                if more == 0:
                    raise OSError(errno.EIO, "the disk took no bytes")
                written += more
        except OSError as error:
            failure = disk_error("append to", self.segment_list.active.path, error)
            failure.__cause__ = error
            self._undo_write(position, error, failure)
            raise failure from error

    def _woken(self) -> int:
        try:
            return self.segment_list.wake()
        except KafkaError as error:
            self.refused(error)
            raise

    def _undo_write(self, position: int, error: OSError, failure: KafkaError) -> None:
        """Cut off a partial write. A full disk may have room again later; after any other error the log goes
        offline."""
        logger.error("%s", failure.message)
        try:
            os.ftruncate(self.segment_list.fd, position)
        except OSError:
            self.fail(failure)
        if error.errno in DISK_FULL:
            self.refused(failure)
        else:
            self.fail(failure)

    # Reading

    def read(self, offset: int, max_bytes: int, upto_offset: int, *, at_least_one: bool) -> LogSlice:
        """Return whole batches, from the batch that contains `offset`, all below `upto_offset`, at most `max_bytes`.

        With `at_least_one` the first batch is included even if it is larger. The slice must be released.

        Raises KafkaError: OFFSET_OUT_OF_RANGE outside log start to log end; KAFKA_STORAGE_ERROR.
        """
        self.check_usable()
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
            found = self.segment_list.slice(
                offset,
                upto,
                end_offset,
                max_bytes,
                at_least_one=at_least_one,
                contiguous=self.is_contiguous,
            )
        except KafkaError as error:
            if is_unreadable(error):
                self.fail(error)
            raise
        if found is None:
            return LogSlice(None, 0, 0, offset)
        found.on_failure = self._unreadable
        return found

    def _unreadable(self, error: OSError) -> None:
        failure = disk_error("read", self.directory, error)
        failure.__cause__ = error
        if is_unreadable(failure):
            self.fail(failure)

    # Rolling and dropping

    def roll(self, now_ms: int) -> None:
        """Start a new segment at the log end, unless the active segment is still empty. Raises KafkaError:
        KAFKA_STORAGE_ERROR; the active segment stays. The log is offline unless the error may pass."""
        active = self.segment_list.active
        if active.size == 0:
            return
        try:
            write_snapshot(self.directory, self.log_end_offset, self.producers, sync=False)
            active.finish()
            self.segment_list.start_segment(self.log_end_offset, now_ms)
        except KafkaError as error:
            self.refused(error)
            raise
        self.on_move()

    def advance_log_start_offset(self, offset: int) -> None:
        """Hide the records below `offset` (retention, DeleteRecords), and drop the segments that have only hidden
        records.

        Raises KafkaError: OFFSET_OUT_OF_RANGE above the log end.
        """
        if offset > self.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"log start {offset} is above the end {self.log_end_offset}"
            )
        if offset <= self.log_start_offset:
            return
        self.log_start_offset = offset
        self.start_moved = True
        self.leader_epochs.truncate_from_start(offset)
        self.old_segments.drop_below(offset)
        self.on_move()

    # Flushing and closing

    def flush(self) -> int:
        """Make all records durable that were appended before the call. Returns the new recovery point. Blocking: run it
        off the event loop.

        Raises KafkaError: KAFKA_STORAGE_ERROR; the log is then offline, since the kernel may have dropped the bytes.
        """
        durable = self.durability
        with durable.flushing:
            self.check_usable()
            cuts, target = durable.cuts, self.log_end_offset
            segments = self.segment_list.copy()
            try:
                durable.sync_segments(segments)
            except KafkaError as error:
                if lacks_resources(error):
                    self.refused(error)
                else:
                    self.fail(error)
                raise
            try:
                durable.sync_the_rest(self.segment_list, self.leader_epochs)
            except KafkaError as error:
                self.refused(error)
                raise
            return durable.flushed(cuts, target, segments)

    @property
    def is_being_flushed(self) -> bool:
        """True while a thread flushes the log. No flush begins after `close`."""
        return self.durability.flushing.locked()

    def wait_for_flush(self) -> None:
        """Return once no thread flushes the log. Blocking."""
        with self.durability.flushing:
            return

    def close(self, *, clean: bool) -> None:
        """Release all files. `clean` first flushes them, and leaves complete indexes and a producer snapshot. Raises
        KafkaError: KAFKA_STORAGE_ERROR."""
        try:
            if clean:
                self.check_usable()
            if clean and self.needs_settling:
                active = self.segment_list.active
                active.finish()
                # The next start recovers nothing and trusts all files, so all of them must be durable first: the
                # indexes here, the log and all names by the flush, the snapshot by its own sync.
                for path in active.files:
                    if path != active.path:
                        sync_file(path)
                self.segment_list.changed = True
                self.leader_epochs.dirty = True
                self.flush()
                write_snapshot(self.directory, self.log_end_offset, self.producers, sync=True)
                self.note_settled()
        finally:
            self._release_files()

    def note_settled(self) -> None:
        """Note that the log's files are written and flushed as a clean stop leaves them. Then `close` does not write
        them again."""
        self._settled, self.fingerprint = self._extent(), None

    def _release_files(self) -> None:
        if self.failure is None:
            self.failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.directory.name} is closed")
        self.segment_list.close()

"""One partition's log: appended at its end, read anywhere, cut and flushed.

Everything but ``open`` and ``flush`` is called from one thread, the event loop's; ``flush`` may run in
another at the same time. Invariant: log start offset <= log end offset; recovery point <= log end offset.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Self

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.record_batch import (
    NO_PRODUCER_ID,
    BatchHeader,
    check_integrity,
    parse_header,
    patch_offset_and_epoch,
    patch_timestamp,
    validate_produced,
    walk_batches,
)
from .append_checks import check_limits
from .checkpoints import PARTITION_METADATA, sync_directory, sync_file, write_leader_epochs
from .config import LogConfig
from .descriptors import FileCache
from .leader_epochs import LeaderEpochs
from .log_slice import LogSlice
from .producer_snapshot import snapshot_offsets, snapshot_path, write_snapshot
from .producer_state import ProducerStates
from .recovery import OpenRequest, load_producers, open_folder
from .segment import POSITION_MAX, Segment
from .segment_list import SegmentList
from .storage_errors import DISK_FULL, disk_error, is_unreadable, lacks_resources, may_pass
from .timestamps import TimestampOffset, find_timestamp, largest_timestamp

_RELATIVE_OFFSET_MAX = 2**31 - 1

logger = logging.getLogger(__name__)

BeforeRecoveryPointFalls = Callable[[int], None]
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


class PartitionLog:
    """See the module; opened with ``open``, closed with ``close``."""

    def __init__(self, request: OpenRequest) -> None:
        self.directory: Path = request.directory
        self.config: LogConfig = request.config
        self.failure: KafkaError | None = None
        """Why the log is offline: set by a disk error after which its content is not certain."""
        self.on_failure: OnFailure | None = None
        """Called once when the log goes offline while in use, in the thread that found out."""
        self.before_recovery_point_falls: BeforeRecoveryPointFalls | None = None
        """Called with the new recovery point before records below the current one are cut; must make it
        durable.
        """
        opened = open_folder(request)
        self._segments = SegmentList(self.directory, request.files, opened.segments, opened.next_offset)
        self.log_end_offset = opened.next_offset
        self.log_start_offset = min(
            max(request.log_start_offset, opened.segments[0].base_offset), opened.next_offset
        )
        self.recovery_point = request.recovery_point
        self.leader_epochs: LeaderEpochs = opened.leader_epochs
        self.producers: ProducerStates = opened.producers
        self._cuts = 0
        # Rises when a cut begins and when it ends: odd while one is under way. A flush that overlapped one
        # must not raise the recovery point, since what it flushed may be gone.
        self._flushing = threading.Lock()
        self._guard = threading.Lock()

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
    ) -> Self:
        """Open or create the log in ``directory``, recovering it after an unclean stop. Blocking.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR if the folder cannot be read, or is damaged where it had been
                flushed.
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
            )
        )

    def __repr__(self) -> str:
        return f"<PartitionLog {self.directory.name} [{self.log_start_offset}, {self.log_end_offset})>"

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self._segments)

    @property
    def doomed(self) -> list[Path]:
        """Files renamed for deletion; whoever unlinks them, off the loop, takes them out of this list."""
        return self._segments.doomed

    @property
    def segments(self) -> tuple[Segment, ...]:
        """From the oldest to the active one; to look at, not to change."""
        return tuple(self._segments)

    @property
    def needs_flush(self) -> bool:
        """Whether a rolled segment, a new file or an epoch still waits for a flush."""
        return (
            self._segments.changed
            or self.leader_epochs.dirty
            or any(not segment.synced for segment in self._segments.copy()[:-1])
        )

    # Appending

    def append_as_leader(self, batches: memoryview, leader_epoch: int, now_ms: int) -> AppendResult:
        """Validate what a client produced, assign offsets in place, and append.

        ``batches`` is patched (offsets, leader epoch, perhaps timestamps); no byte is copied.

        Raises:
            KafkaError: the code that answers the client; nothing was appended.
        """
        self._check_usable()
        config = self.config
        parsed = validate_produced(batches)
        check_limits(parsed, len(batches), config, now_ms)
        if parsed[0][1].producer_id != NO_PRODUCER_ID:
            if len(parsed) > 1:
                raise KafkaError(ErrorCode.INVALID_RECORD, "an idempotent producer sends one batch at a time")
            original = self.producers.check(parsed[0][1])
            if original is not None:
                stamp = original.timestamp if config.stamps_at_append else -1
                return AppendResult(
                    original.first_offset, original.last_offset, stamp, original.timestamp, 0, True
                )
        first_offset = offset = self.log_end_offset
        stamps = config.stamps_at_append
        placed: list[tuple[int, int, BatchHeader]] = []
        for position, header in parsed:
            patch_offset_and_epoch(batches, position, offset, leader_epoch)
            if stamps or header.is_log_append_time:
                stamp = now_ms if stamps else header.max_timestamp
                patch_timestamp(batches, position, header, log_append_time=stamps, max_timestamp_ms=stamp)
                header = parse_header(batches, position)
            placed.append((position, offset, header))
            offset += header.last_offset_delta + 1
        max_timestamp = self._append(batches, placed, offset, now_ms)
        if leader_epoch > self.leader_epochs.latest_epoch:
            self.leader_epochs.assign(leader_epoch, first_offset)
        return AppendResult(
            first_offset, offset - 1, now_ms if stamps else -1, max_timestamp, len(batches), False
        )

    def append_as_follower(self, batches: memoryview, now_ms: int) -> AppendResult:
        """Append what the leader sent, byte for byte: offsets and epochs are as in the batches.

        Raises:
            KafkaError: CORRUPT_MESSAGE for damaged bytes, INVALID_RECORD if they do not continue at the log
                end; KAFKA_STORAGE_ERROR. Nothing was appended.
        """
        self._check_usable()
        first_offset, offset = -1, self.log_end_offset
        placed = []
        for position, header in walk_batches(batches):
            check_integrity(batches, position, header)
            base_offset = header.base_offset
            if base_offset != offset and (base_offset < offset or not self.config.compacted):
                raise KafkaError(
                    ErrorCode.INVALID_RECORD,
                    f"{self.directory.name} ends at {offset}, the leader sent a batch at {base_offset}",
                )
            if header.last_offset_delta < 0:
                raise KafkaError(
                    ErrorCode.CORRUPT_MESSAGE, f"the batch at offset {base_offset} spans no offset"
                )
            if first_offset < 0:
                first_offset = base_offset
            placed.append((position, base_offset, header))
            offset = base_offset + header.last_offset_delta + 1
        if not placed:
            return AppendResult(offset, offset - 1, -1, -1, 0, False)
        max_timestamp = self._append(batches, placed, offset, now_ms)
        epochs = self.leader_epochs
        for _, base_offset, header in placed:
            if header.partition_leader_epoch > epochs.latest_epoch:
                epochs.assign(header.partition_leader_epoch, base_offset)
        return AppendResult(first_offset, offset - 1, -1, max_timestamp, len(batches), False)

    def _check_usable(self) -> None:
        if self.failure is not None:
            raise self.failure

    def _fail(self, error: KafkaError) -> None:
        """Take the log offline; one that was closed meanwhile has no files left to be certain about."""
        if self.failure is None:
            self.failure = error
            if self.on_failure is not None:
                self.on_failure(error)

    def _append(
        self, batches: memoryview, placed: list[tuple[int, int, BatchHeader]], next_offset: int, now_ms: int
    ) -> int:
        """Write, then note; ``placed`` holds (position in the buffer, base offset, header). The max
        timestamp.
        """
        size = len(batches)
        max_timestamp = placed[0][2].max_timestamp
        if len(placed) > 1:
            max_timestamp = max(header.max_timestamp for _, _, header in placed)
        if self._must_roll(size, next_offset - 1, max_timestamp, now_ms):
            self.roll(now_ms)
        segments = self._segments
        segment = segments.active
        start = segment.size
        self._write(batches, start)
        segment.size = start + size
        interval, producers = self.config.index_interval_bytes, self.producers
        for position, offset, header in placed:
            segment.note_batch(header, offset + header.last_offset_delta, start + position, interval)
            if header.producer_id != NO_PRODUCER_ID:
                producers.record(header, offset, now_ms)
        self.log_end_offset = next_offset
        segments.note_boundary(next_offset, start + size)
        return max_timestamp

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

    def _must_roll(self, size: int, last_offset: int, max_timestamp: int, now_ms: int) -> bool:
        segment, config = self._segments.active, self.config
        held = segment.size
        if held == 0:
            return False
        if held + size > config.segment_bytes or held + size > POSITION_MAX:
            return True
        first = segment.first_timestamp
        if first is not None and first >= 0 and max_timestamp >= 0:
            waited = max_timestamp - first
        else:
            waited = now_ms - segment.created_ms
        return (
            waited > config.segment_ms
            or last_offset - segment.base_offset > _RELATIVE_OFFSET_MAX
            or segment.offset_index.size >= config.segment_index_bytes
            or segment.time_index.size >= config.segment_index_bytes
        )

    def roll(self, now_ms: int) -> None:
        """Start a new segment at the log end, unless the active one is still empty.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR; the active segment stays.
        """
        active = self._segments.active
        if active.size == 0:
            return
        write_snapshot(self.directory, self.log_end_offset, self.producers, sync=False)
        active.finish()
        self._segments.start_segment(self.log_end_offset, now_ms)

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
            found = self._segments.slice(offset, upto, end_offset, max_bytes, at_least_one=at_least_one)
        except KafkaError as error:
            if is_unreadable(error):
                self._fail(error)
            raise
        return LogSlice(None, 0, 0, offset) if found is None else found

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

    # Cutting

    def truncate_to(self, offset: int) -> None:
        """Cut the log so that it ends at ``offset``, or at the start of the batch that holds it.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR; the log is then offline.
        """
        self._check_usable()
        if offset >= self.log_end_offset:
            return
        if offset < self._segments.first_base:
            self.truncate_fully_and_start_at(offset)
            return
        segment, position, cut = self._segments.find_cut(offset)
        self._begin_cut(cut)
        try:
            self._truncate(segment, position, cut)
        except OSError as error:
            failure = disk_error("truncate", self.directory, error)
            self._fail(failure)
            raise failure from error
        except KafkaError as error:
            self._fail(error)
            raise

    def _truncate(self, segment: Segment, position: int, cut: int) -> None:
        self._segments.cut(segment, position, cut)
        self.log_end_offset = cut
        self._end_cut()
        self.log_start_offset = min(self.log_start_offset, cut)
        self.leader_epochs.truncate_from_end(cut)
        self._drop_snapshots_above(cut)
        if not self.producers.forget_from(cut):
            self._reload_producers()

    def _reload_producers(self) -> None:
        now_ms = max((entry.last_seen_ms for entry in self.producers.entries()), default=0)
        self.producers = load_producers(
            self.directory, self._segments.copy(), self.log_end_offset, self.config, now_ms
        )

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything and continue, empty, at ``offset``.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR; the log is then offline.
        """
        self._check_usable()
        now_ms = self._segments.active.created_ms
        self._begin_cut(min(offset, self.log_start_offset))
        try:
            self._segments.replace_all(offset, now_ms)
            self._drop_snapshots_above(-1)
        except OSError as error:
            failure = disk_error("truncate", self.directory, error)
            self._fail(failure)
            raise failure from error
        except KafkaError as error:
            self._fail(error)
            raise
        self.log_start_offset = self.log_end_offset = offset
        self.leader_epochs.clear()
        self.producers.clear()
        self.recovery_point = offset
        self._end_cut()

    def _begin_cut(self, offset: int) -> None:
        with self._guard:
            self._cuts += 1
            falls = offset < self.recovery_point
            self.recovery_point = min(self.recovery_point, offset)
        if falls and self.before_recovery_point_falls is not None:
            try:
                self.before_recovery_point_falls(offset)
            except KafkaError:
                self._end_cut()  # Nothing is cut; there may be room for the checkpoint later.
                raise

    def _end_cut(self) -> None:
        with self._guard:
            self._cuts += 1

    def _drop_snapshots_above(self, offset: int) -> None:
        for snapshot in snapshot_offsets(self.directory):
            if snapshot > offset:
                snapshot_path(self.directory, snapshot).unlink(missing_ok=True)

    def advance_log_start_offset(self, offset: int) -> None:
        """Hide the records below ``offset`` (retention, DeleteRecords) and drop the segments that held only
        those.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE above the log end.
        """
        if offset > self.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"log start {offset} is above the end {self.log_end_offset}"
            )
        if offset <= self.log_start_offset:
            return
        self.log_start_offset = offset
        self.leader_epochs.truncate_from_start(offset)
        self.delete_old_segments(offset)

    def delete_old_segments(self, upto_offset: int) -> int:
        """Drop the inactive segments that lie wholly below ``upto_offset``; how many.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        dropped = self._segments.drop_first(upto_offset)
        if dropped:
            first_base = self._segments.first_base
            self.log_start_offset = max(self.log_start_offset, first_base)
            self.leader_epochs.truncate_from_start(self.log_start_offset)
            for snapshot in snapshot_offsets(self.directory):
                if snapshot < first_base:
                    snapshot_path(self.directory, snapshot).unlink(missing_ok=True)
        return dropped

    # Flushing and closing

    def flush(self) -> int:
        """Make everything appended before the call durable; the new recovery point. Blocking: run it off
        the loop.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR; the log is then offline, since the kernel may have dropped the
                bytes.
        """
        with self._flushing:
            self._check_usable()
            cuts, target = self._cuts, self.log_end_offset
            segments = self._segments.copy()
            try:
                self._sync_segments(segments)
            except KafkaError as error:
                if not lacks_resources(error):
                    self._fail(error)
                raise
            try:
                self._sync_the_rest()
            except KafkaError as error:
                if not may_pass(error):
                    self._fail(error)
                raise
            with self._guard:
                if cuts == self._cuts and cuts % 2 == 0:
                    self.recovery_point = max(self.recovery_point, target)
                    for segment in segments[:-1]:
                        segment.synced = True
                return self.recovery_point

    def _sync_the_rest(self) -> None:
        """Leader epochs and names. Raises KafkaError: KAFKA_STORAGE_ERROR; the next flush tries again."""
        epochs, segments = self.leader_epochs, self._segments
        dirty, changed = epochs.dirty, segments.changed
        try:
            # Lowered first, and only if seen raised: what the event loop adds meanwhile raises them again.
            if dirty:
                epochs.dirty = False
                write_leader_epochs(self.directory, epochs.entries, sync=True)
            if changed:
                segments.changed = False
                sync_file(self.directory / PARTITION_METADATA)
                sync_directory(self.directory)
        except KafkaError:
            epochs.dirty |= dirty
            segments.changed |= changed
            raise

    def _sync_segments(self, segments: list[Segment]) -> None:
        for segment in segments[:-1]:
            if not segment.synced:
                for path in (segment.path, segment.offset_index.path, segment.time_index.path):
                    sync_file(path)
        sync_file(segments[-1].path)

    def close(self, *, clean: bool) -> None:
        """Let go of all files; ``clean`` flushes first and leaves indexes and a producer snapshot that say
        all.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        try:
            if clean:
                self._check_usable()
                self._segments.active.finish()
                write_snapshot(self.directory, self.log_end_offset, self.producers, sync=True)
                self.leader_epochs.dirty = True
                self.flush()
        finally:
            self._release_files()

    def _release_files(self) -> None:
        if self.failure is None:
            self.failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.directory.name} is closed")
        self._segments.close()

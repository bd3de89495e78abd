"""What every log is before anything is appended to it: a folder that was opened, is flushed, and is closed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Self

from ...protocol.errors import ErrorCode, KafkaError
from .config import LogConfig
from .durability import BeforeRecoveryPointFalls, Durability
from .durable_files import sync_file
from .leader_epochs import LeaderEpochs
from .producers.producer_snapshot import write_snapshot
from .producers.producer_state import ProducerStates
from .recovery.recovery import OpenRequest, open_folder
from .segments.descriptors import FileCache
from .segments.segment import Segment
from .segments.segment_list import SegmentList
from .segments.segment_swap import mark_gaps, note_gap
from .storage_errors import lacks_resources, may_pass

OnFailure = Callable[[KafkaError], None]


class StoredLog:
    """Segments, leader epochs and producer state of a partition, and whether the disk under them still works."""

    def __init__(self, request: OpenRequest) -> None:
        self.directory: Path = request.directory
        self.config: LogConfig = request.config
        self.failure: KafkaError | None = None
        """Why the log is offline: set by a disk error after which its content is not certain."""
        self.on_failure: OnFailure | None = None
        """Called once when the log goes offline while in use, in the thread that found out."""
        opened = open_folder(request)
        self._segments = SegmentList(self.directory, request.files, opened.segments, opened.next_offset)
        self.log_end_offset = opened.next_offset
        self.log_start_offset = min(
            max(request.log_start_offset, opened.segments[0].base_offset), opened.next_offset
        )
        self._durable = Durability(self.directory, request.recovery_point)
        self.leader_epochs: LeaderEpochs = opened.leader_epochs
        self.producers: ProducerStates = opened.producers
        self._has_gaps = opened.has_gaps

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
    def recovery_point(self) -> int:
        """Offset below which everything was flushed."""
        return self._durable.recovery_point

    @property
    def cuts(self) -> int:
        """Rises with every truncation."""
        return self._durable.cuts

    @property
    def before_recovery_point_falls(self) -> BeforeRecoveryPointFalls | None:
        """Called with the new recovery point before records below the current one are cut; must make it
        durable.
        """
        return self._durable.before_recovery_point_falls

    @before_recovery_point_falls.setter
    def before_recovery_point_falls(self, call: BeforeRecoveryPointFalls | None) -> None:
        self._durable.before_recovery_point_falls = call

    @property
    def is_contiguous(self) -> bool:
        """Whether each batch begins where the one before ended: it was never compacted, nor copied from such a log."""
        return not (self.config.compacted or self._has_gaps)

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

    def check(self) -> None:
        """AssertionError if the parts contradict each other. Looks at every segment and producer; a log that is
        offline may look as it likes."""
        if self.failure is not None:
            return
        start, end = self.log_start_offset, self.log_end_offset
        self._segments.check(end)
        if not self._segments.first_base <= start <= end:
            raise AssertionError(
                f"{self!r}: first segment {self._segments.first_base} <= log start <= log end does not hold"
            )
        if self.recovery_point > end:
            raise AssertionError(f"{self!r}: flushed to {self.recovery_point}, past its end")
        self.leader_epochs.check(start, end)
        self.producers.check(end)

    # Going offline

    def _check_usable(self) -> None:
        if self.failure is not None:
            raise self.failure

    def _fail(self, error: KafkaError) -> None:
        """Take the log offline; one that was closed meanwhile has no files left to be certain about."""
        if self.failure is None:
            self.failure = error
            if self.on_failure is not None:
                self.on_failure(error)

    def _note_gaps(self) -> None:
        if not self._has_gaps:
            mark_gaps(self.directory)
            self._has_gaps = True
            self._segments.changed = True

    def _start_behind_gap(self, base_offset: int, now_ms: int) -> None:
        """Start a segment that does not continue the active one, which ends before."""
        note_gap(self.directory, base_offset)
        self._has_gaps = True
        self._segments.start_segment(base_offset, now_ms)

    # Flushing and closing

    def flush(self) -> int:
        """Make everything appended before the call durable; the new recovery point. Blocking: run it off
        the loop.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR; the log is then offline, since the kernel may have dropped the
                bytes.
        """
        durable = self._durable
        with durable.flushing:
            self._check_usable()
            cuts, target = durable.cuts, self.log_end_offset
            segments = self._segments.copy()
            try:
                durable.sync_segments(segments)
            except KafkaError as error:
                if not lacks_resources(error):
                    self._fail(error)
                raise
            try:
                durable.sync_the_rest(self._segments, self.leader_epochs)
            except KafkaError as error:
                if not may_pass(error):
                    self._fail(error)
                raise
            return durable.flushed(cuts, target, segments)

    def close(self, *, clean: bool) -> None:
        """Let go of all files; ``clean`` flushes first and leaves indexes and a producer snapshot that say
        all.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        try:
            if clean:
                self._check_usable()
                active = self._segments.active
                active.finish()
                # The next start recovers nothing, and trusts all files: so they are durable before that is promised,
                # the indexes here, the log and all names by the flush, the snapshot by itself.
                for path in active.files:
                    if path != active.path:
                        sync_file(path)
                self._segments.changed = True
                self.leader_epochs.dirty = True
                self.flush()
                write_snapshot(self.directory, self.log_end_offset, self.producers, sync=True)
        finally:
            self._release_files()

    def _release_files(self) -> None:
        if self.failure is None:
            self.failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.directory.name} is closed")
        self._segments.close()

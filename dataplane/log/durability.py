"""The part of one log that is known to be on the disk: flushes raise its end, the recovery point, and truncations lower
it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from ...protocol.errors import KafkaError
from .checkpoints import PARTITION_METADATA, write_leader_epochs
from .durable_files import sync_directory, sync_file
from .leader_epochs import LeaderEpochs
from .producers.producer_snapshot import snapshot_path
from .segments.segment import Segment
from .segments.segment_list import SegmentList

BeforeRecoveryPointFalls = Callable[[int], None]
BeforeCompactedGoes = Callable[[int], None]

NOT_CUT: Final = 2**63 - 1
"""A number above all offsets."""


class Durability:
    """The recovery point of a log, below which all records were flushed.

    Only the event loop cuts the log (truncates it). A flush may run in another thread at the same time, one flush at a
    time.
    """

    __slots__ = (
        "_cuts",
        "_directory",
        "_guard",
        "_is_named",
        "_lowest_cut",
        "before_compacted_goes",
        "before_recovery_point_falls",
        "compacted_upto",
        "flushing",
        "recovery_point",
    )

    def __init__(self, directory: Path, recovery_point: int, *, is_named: bool) -> None:
        self._directory = directory
        self.recovery_point = recovery_point
        self.before_recovery_point_falls: BeforeRecoveryPointFalls | None = None
        """A function that is called with the new recovery point before records below the present one are cut. It must
        make the new point durable."""
        self.compacted_upto = 0
        """The offset up to which the log is compacted, according to a file."""
        self.before_compacted_goes: BeforeCompactedGoes | None = None
        """A function that is called with the lowest offset of a cut, before compacted records are cut. It raises
        nothing."""
        self.flushing = threading.Lock()
        self._guard = threading.Lock()
        self._cuts = 0
        # Rises when a cut begins and when it ends, so it is odd during a cut. A flush that overlapped a cut must not
        # raise the recovery point, since the flushed records may be gone.
        self._lowest_cut = NOT_CUT
        self._is_named = is_named
        # True if the folder's own name and its topic id are durable. A folder is only renamed while its log is closed,
        # so one flush of each opened log makes them durable.

    @property
    def cuts(self) -> int:
        """The number of truncations of the log that began, plus those that ended. A flush reads it first, and passes it
        to `flushed`, which so detects a truncation in between."""
        return self._cuts

    def take_lowest_cut(self) -> int:
        """Return the lowest offset to which the log was truncated since the last call; `NOT_CUT` if it was not
        truncated."""
        with self._guard:
            lowest, self._lowest_cut = self._lowest_cut, NOT_CUT
        return lowest

    def begin_cut(self, offset: int) -> None:
        """Announce a truncation: records from `offset` on will be removed, and the recovery point falls to `offset`.
        Raises KafkaError: then nothing may be removed."""
        with self._guard:
            self._cuts += 1
            self._lowest_cut = min(self._lowest_cut, offset)
            falls = offset < self.recovery_point
            self.recovery_point = min(self.recovery_point, offset)
        if falls and self.before_recovery_point_falls is not None:
            try:
                self.before_recovery_point_falls(offset)
            except KafkaError:
                self.end_cut()  # Nothing is cut. A later attempt may find room for the checkpoint.
                raise
        if offset < self.compacted_upto and self.before_compacted_goes is not None:
            self.before_compacted_goes(offset)

    def end_cut(self) -> None:
        """Note that the announced truncation is done."""
        with self._guard:
            self._cuts += 1

    def sync_cut(self, cut: Path) -> None:
        """Make durable that the file `cut` ends at its present end, and that the later files are gone.

        This must happen before any append. Otherwise the disk might write a later file of new records first; after a
        power failure then, the cut records would precede the new ones. Producer snapshots of the cut records would also
        be trusted again, once the log reached their offsets.

        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        sync_file(cut)
        sync_directory(self._directory)

    def flushed(self, cuts: int, target: int, segments: Sequence[Segment]) -> int:
        """Raise the recovery point after a flush of `segments`, all segments of the log at the time, up to offset
        `target`.

        `cuts` is the number of truncations before the flush. If the log was truncated since, nothing is raised. Returns
        the present recovery point.
        """
        with self._guard:
            if cuts == self._cuts and cuts % 2 == 0:
                self.recovery_point = max(self.recovery_point, target)
                for segment in segments[:-1]:
                    segment.synced = True
            return self.recovery_point

    def sync_segments(self, segments: Sequence[Segment]) -> None:
        """Flush the active segment, and each older unflushed segment with the producer snapshot at its end. Raises
        KafkaError: KAFKA_STORAGE_ERROR."""
        for segment, following in pairwise(segments):
            if not segment.synced:
                for path in (*segment.files, snapshot_path(self._directory, following.base_offset)):
                    sync_file(path)
        sync_file(segments[-1].path)

    def synced_the_rest(self, segments: SegmentList, epochs: LeaderEpochs) -> None:
        """Note that the leader epoch file, in its present state, and the names of all files of the log were flushed
        together with those of other logs."""
        epochs.dirty, epochs.saved = False, epochs.entries
        segments.changed = False
        self._is_named = True

    def sync_the_rest(self, segments: SegmentList, epochs: LeaderEpochs) -> None:
        """Write and flush the leader epoch file if it is outdated, and flush the names of the log's files. Raises
        KafkaError: KAFKA_STORAGE_ERROR; the next flush tries again."""
        dirty, changed = epochs.dirty, segments.changed
        try:
            # Flags are cleared before the write, and only if they were set: changes that the event loop makes meanwhile
            # set them again.
            if dirty:
                epochs.dirty, entries = False, epochs.entries
                write_leader_epochs(self._directory, entries, sync=True)
                epochs.saved = entries
            if changed:
                segments.changed = False
                sync_directory(self._directory)
                if not self._is_named:
                    sync_file(self._directory / PARTITION_METADATA)
                    sync_directory(self._directory.parent)
                    self._is_named = True
        except KafkaError:
            epochs.dirty |= dirty
            segments.changed |= changed
            raise

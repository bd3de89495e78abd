"""How much of one log is known to be on the disk: flushes, and the cuts that take some of it back."""

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
"""Above all offsets."""


class Durability:
    """The recovery point, below which everything was flushed.

    Cuts are the event loop's; a flush may run in another thread at the same time, one at a time.
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
        """Called with the new recovery point before records below the current one are cut; must make it
        durable.
        """
        self.compacted_upto = 0
        """Up to where a file says that the log is compacted."""
        self.before_compacted_goes: BeforeCompactedGoes | None = None
        """Called with the lowest offset before records below that are cut. It raises nothing."""
        self.flushing = threading.Lock()
        self._guard = threading.Lock()
        self._cuts = 0
        # Rises when a cut begins and when it ends: odd while one is under way. A flush that overlapped one
        # must not raise the recovery point, since what it flushed may be gone.
        self._lowest_cut = NOT_CUT
        self._is_named = is_named
        # Whether the folder's own name and whose log it holds are durable. A folder is only renamed while its log
        # is closed, so that one flush of each opened log sees to it.

    @property
    def cuts(self) -> int:
        """A flush notes this before it looks at the log, and gives it to `flushed`."""
        return self._cuts

    def take_lowest_cut(self) -> int:
        """The lowest offset at which the log was cut since this was asked last, `NOT_CUT` if it was not."""
        with self._guard:
            lowest, self._lowest_cut = self._lowest_cut, NOT_CUT
        return lowest

    def begin_cut(self, offset: int) -> None:
        """Records from `offset` on are about to go. Raises KafkaError: nothing may be cut then."""
        with self._guard:
            self._cuts += 1
            self._lowest_cut = min(self._lowest_cut, offset)
            falls = offset < self.recovery_point
            self.recovery_point = min(self.recovery_point, offset)
        if falls and self.before_recovery_point_falls is not None:
            try:
                self.before_recovery_point_falls(offset)
            except KafkaError:
                self.end_cut()  # Nothing is cut; there may be room for the checkpoint later.
                raise
        if offset < self.compacted_upto and self.before_compacted_goes is not None:
            self.before_compacted_goes(offset)

    def end_cut(self) -> None:
        """They are gone."""
        with self._guard:
            self._cuts += 1

    def sync_cut(self, cut: Path) -> None:
        """Make it durable that the file `cut` ends where it ends now, and that the files behind it are gone.

        Before anything is appended: of what comes in the place of the records that were cut the disk may get a later
        file first, and if power failed then, the records that were cut would stand before those. What a snapshot told
        of their producers would be taken for true again, too, once the log reached as far.

        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        sync_file(cut)
        sync_directory(self._directory)

    def flushed(self, cuts: int, target: int, segments: Sequence[Segment]) -> int:
        """`segments`, all there were, are flushed up to offset `target`; the recovery point now."""
        with self._guard:
            if cuts == self._cuts and cuts % 2 == 0:
                self.recovery_point = max(self.recovery_point, target)
                for segment in segments[:-1]:
                    segment.synced = True
            return self.recovery_point

    def sync_segments(self, segments: Sequence[Segment]) -> None:
        """Flush the active segment, and those that were not yet with what the log knew of producers at their end.
        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        for segment, following in pairwise(segments):
            if not segment.synced:
                for path in (*segment.files, snapshot_path(self._directory, following.base_offset)):
                    sync_file(path)
        sync_file(segments[-1].path)

    def synced_the_rest(self, segments: SegmentList, epochs: LeaderEpochs) -> None:
        """Leader epochs, which were written as they are, and all names were flushed together with other logs'."""
        epochs.dirty, epochs.saved = False, epochs.entries
        segments.changed = False
        self._is_named = True

    def sync_the_rest(self, segments: SegmentList, epochs: LeaderEpochs) -> None:
        """Leader epochs and names. Raises KafkaError: KAFKA_STORAGE_ERROR; the next flush tries again."""
        dirty, changed = epochs.dirty, segments.changed
        try:
            # Lowered first, and only if seen raised: what the event loop adds meanwhile raises them again.
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

"""A log whose ends move: rolled and truncated at the end, trimmed at the start, compacted in between."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from ...protocol.errors import ErrorCode, KafkaError
from .producers.producer_loading import load_producers, told_by_batches_from
from .producers.producer_snapshot import snapshot_offsets, snapshot_path, write_snapshot
from .retention import segments_to_drop
from .segments.segment import Segment
from .segments.segment_swap import swap_in
from .storage_errors import disk_error
from .stored_log import StoredLog

_DROPPED_AT_ONCE = 16
"""Segments dropped within one call when the log start moves; retention finds the others."""


class TrimmableLog(StoredLog):
    """Decides nothing: who cuts has found out what may go."""

    awaits_flush = False
    """Whether segments that might go are kept until the log was flushed."""

    # Rolling

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

    def leave_out_to(self, offset: int) -> None:
        """Have the log end at ``offset``, with nothing between its last record and there: what it is a copy of
        ends so.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        self._check_usable()
        self._segments.active.finish()
        self._start_behind_gap(offset, self._segments.active.created_ms)
        self.log_end_offset = offset

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
        left_end = segment.end_before(position) if self._has_gaps else cut
        self._durable.begin_cut(min(cut, left_end))
        try:
            self._truncate(segment, position, cut)
            if left_end < cut:
                # Offsets were left out before the cut: only the name of a segment can tell where the log ends.
                segment.finish()
                self._start_behind_gap(cut, segment.created_ms)
        except OSError as error:
            failure = disk_error("truncate", self.directory, error)
            self._fail(failure)
            raise failure from error
        except KafkaError as error:
            self._fail(error)
            raise

    def _truncate(self, segment: Segment, position: int, cut: int) -> None:
        self._segments.cut(segment, position, cut)
        self._durable.sync_cut(segment.path)
        self.log_end_offset = cut
        self._durable.end_cut()
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
        self._durable.begin_cut(min(offset, self.log_start_offset))
        try:
            self._segments.replace_all(offset, now_ms)
            self._durable.sync_cut(self._segments.active.path)
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
        self._durable.end_cut()

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
        self.delete_old_segments(offset, _DROPPED_AT_ONCE)

    def _retain_from(self, upper_bound: int, now_ms: int) -> int:
        """Drop what retention need not keep, and nothing from ``upper_bound`` on."""
        self._check_usable()
        segments = self._segments.copy()
        going = segments_to_drop(
            segments,
            self.config,
            log_start_offset=self.log_start_offset,
            log_end_offset=self.log_end_offset,
            upper_bound=upper_bound,
            now_ms=now_ms,
        )
        if going == 0:
            return 0
        if going == len(segments):
            self.roll(now_ms)
            segments.append(self._segments.active)
        dropped = self.delete_old_segments(segments[going].base_offset, _DROPPED_AT_ONCE)
        if not dropped:
            self._note_producers(segments[going].base_offset, now_ms)
        return dropped

    def _note_producers(self, offset: int, now_ms: int) -> None:
        """See to it that there is a snapshot, at ``offset`` or above, that the next flush makes durable."""
        segments = self._segments.copy()
        if any(
            segment.base_offset >= offset and snapshot_path(self.directory, segment.base_offset).exists()
            for segment in segments[1:]
        ):
            return
        if self._segments.active.size:
            self.roll(now_ms)
        else:
            write_snapshot(self.directory, self.log_end_offset, self.producers, sync=False)
            segments[-2].synced = False
            self._segments.changed = True

    def delete_old_segments(self, upto_offset: int, at_most: int) -> int:
        """Drop the first ``at_most`` inactive segments that lie wholly below ``upto_offset``; how many.

        Producers are remembered even if all they wrote is gone: their next sequence is still the next (KIP-360), and
        what they had in flight still a duplicate. That is so when power fails, too: what only a snapshot will tell then
        is kept until that is flushed.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        second = self._segments.first(2)[1:]
        if second and second[0].base_offset <= upto_offset:
            known = self._producers_durable_without()
            self.awaits_flush = second[0].base_offset > known
            upto_offset = min(upto_offset, known)
        bases = [segment.base_offset for segment in self._segments.first(at_most)]
        dropped = self._segments.drop_first(upto_offset, at_most)
        if dropped:
            self.log_start_offset = max(self.log_start_offset, self._segments.first_base)
            self.leader_epochs.truncate_from_start(self.log_start_offset)
            for base in bases[:dropped]:
                snapshot_path(self.directory, base).unlink(missing_ok=True)
        return dropped

    def _producers_durable_without(self) -> int:
        """The offset below which segments tell nothing of producers that is not durable elsewhere."""
        told = told_by_batches_from(self.producers, self.log_end_offset)
        for following, segment in pairwise(reversed(self._segments.copy())):
            if following.base_offset <= told:
                break
            if segment.synced and snapshot_path(self.directory, following.base_offset).exists():
                return following.base_offset
        return told

    def replace_segments(self, old: Sequence[Segment], new_files: Sequence[Path]) -> None:
        """Put compacted segments in the place of adjoining inactive ones (`segment_swap` says how).

        ``old`` are segments of `segments`; ``new_files`` are their successors, ``<base>.log.cleaned`` beside
        them, flushed, with both indexes under the same suffix. The first takes the base of the first of
        ``old``, the others that of any. Each ends where what it replaces does: what lies behind a segment that
        ends early counts as lost with its end after a crash. Whoever reads the old ones through a slice goes on.

        Raises:
            ValueError: the log has moved on since (retention, a truncation), or the files do not fit; nothing
                has changed, and the files are still there.
            KafkaError: KAFKA_STORAGE_ERROR; the log is then offline, and opening it finishes or undoes the
                swap.
        """
        self._check_usable()
        self._segments.check_replaceable(old)
        self._note_gaps()
        try:
            swap_in(self._segments, old, new_files)
        except KafkaError as error:
            self._fail(error)
            raise
        for segment in old[1:]:
            snapshot_path(self.directory, segment.base_offset).unlink(missing_ok=True)

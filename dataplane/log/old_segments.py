"""The inactive segments of a log, which retention drops and compaction replaces.

Whole segments are dropped, each with its indexes. Producer state that only they contain must be durable elsewhere
first.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from ...protocol.errors import KafkaError
from .producers.producer_loading import told_by_batches_from
from .producers.producer_snapshot import snapshot_path, write_snapshot
from .retention import Hold, segments_to_drop
from .segments.doomed_files import doom
from .segments.segment_swap import swap_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from .open_log import OpenLog
    from .segments.segment import Segment
    from .transactions import LogTransactions

_DROPPED_AT_ONCE = 16
"""The maximum number of segments that one call drops; later calls drop the rest."""


class OldSegments:
    """The methods that drop the oldest segments, a few at a time, and swap compacted segments in."""

    __slots__ = ("_log", "_transactions", "awaits_flush")

    def __init__(self, log: OpenLog, transactions: LogTransactions) -> None:
        self._log = log
        self._transactions = transactions
        self.awaits_flush = False
        """True if segments that could be dropped are kept until the log was flushed."""

    def retain(self, high_watermark: int, now_ms: int, hold: Hold | None = None) -> int:
        """Drop segments that neither retention nor `hold` keeps, and return their number. The caller repeats the call
        until it returns 0.

        No part of a transaction is dropped before the transaction has ended, so that a commit finds all of it. The time
        that it may stay open is bounded (`transaction.max.timeout.ms`).

        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        return self._retain_from(self._transactions.last_stable_offset(high_watermark), now_ms, hold)

    def _retain_from(self, upper_bound: int, now_ms: int, hold: Hold | None = None) -> int:
        """Drop segments that neither retention nor `hold` keeps, and nothing from `upper_bound` on."""
        log = self._log
        log.check_usable()
        segments = log.segment_list.copy()
        going = self._over(segments, upper_bound, now_ms, hold)
        if going == 0:
            return 0
        if going == len(segments):
            log.roll(now_ms)
            segments.append(log.segment_list.active)
        dropped = self.drop_below(segments[going].base_offset)
        if not dropped:
            self._note_producers(segments[going].base_offset, now_ms)
        return dropped

    def held(self, high_watermark: int, now_ms: int, hold: Hold) -> list[Segment]:
        """Return the segments that retention would drop without `hold`, and keeps with it. Raises as `retain` does."""
        segments = self._log.segment_list.copy()
        upper_bound = self._transactions.last_stable_offset(high_watermark)
        kept_from = self._over(segments, upper_bound, now_ms, hold)
        return segments[kept_from : self._over(segments, upper_bound, now_ms, None)]

    def _over(self, segments: Sequence[Segment], upper_bound: int, now_ms: int, hold: Hold | None) -> int:
        """Return the number of the log's segments that retention should drop."""
        log = self._log
        return segments_to_drop(
            segments,
            log.config,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            upper_bound=upper_bound,
            now_ms=now_ms,
            hold=hold,
        )

    def _note_producers(self, offset: int, now_ms: int) -> None:
        """Ensure that there is a snapshot, at `offset` or above, that the next flush makes durable."""
        log = self._log
        segments = log.segment_list.copy()
        if any(
            segment.base_offset >= offset and snapshot_path(log.directory, segment.base_offset).exists()
            for segment in segments[1:]
        ):
            return
        self.keep_producers(now_ms)

    def keep_producers(self, now_ms: int) -> None:
        """Write a snapshot of the present producers, since the batches of the log do not contain all of them. The next
        flush makes it durable at the latest.

        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        log = self._log
        if log.segment_list.active.size:
            log.roll(now_ms)
        else:
            # Flushed here, since a flush under way may have passed this file, and would count it as flushed.
            write_snapshot(log.directory, log.log_end_offset, log.producers, sync=True)

    def drop_below(self, upto_offset: int) -> int:
        """Drop the first inactive segments that lie wholly below `upto_offset`, and return their number.

        Producers are remembered even if all their records are gone: their next sequence stays the same (KIP-360), and
        batches that they had in flight are still duplicates. This must hold after a power failure, too. So a segment
        stays until the snapshot is flushed that alone will contain its producers.

        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        log, segments = self._log, self._log.segment_list
        second = segments.first(2)[1:]
        if second and second[0].base_offset <= upto_offset:
            known = self._producers_durable_without()
            self.awaits_flush = second[0].base_offset > known
            upto_offset = min(upto_offset, known)
        bases = [segment.base_offset for segment in segments.first(_DROPPED_AT_ONCE)]
        dropped = segments.drop_first(upto_offset, _DROPPED_AT_ONCE)
        if dropped:
            log.log_start_offset = max(log.log_start_offset, segments.first_base)
            log.start_moved = True
            log.leader_epochs.truncate_from_start(log.log_start_offset)
            self._doom_snapshots(bases[:dropped])
            log.on_move()
        return dropped

    def replace(self, old: Sequence[Segment], new_files: Sequence[Path]) -> None:
        """Replace adjoining inactive segments by compacted ones (see `segment_swap`).

        `old` are segments of the log. `new_files` are their successors, `<base>.log.cleaned` beside them, flushed, with
        both indexes under the same suffix. The first has the base offset of the first of `old`, the others those of
        any. Each ends at the same offset as the segments that it replaces: after a crash, segments after an early end
        count as lost. Readers of the old segments through a slice can continue.

        Raises ValueError if the log has changed (retention, a truncation), or the files do not fit. Then nothing has
        changed, and the files are still there. Raises KafkaError: KAFKA_STORAGE_ERROR; the log is then offline, and
        opening it finishes or undoes the swap.
        """
        log = self._log
        log.check_usable()
        log.segment_list.check_replaceable(old)
        log.segment_list.note_gaps()
        try:
            swap_in(log.segment_list, old, new_files)
        except KafkaError as error:
            log.fail(error)
            raise
        self._doom_snapshots(segment.base_offset for segment in old[1:])
        log.on_move()

    def _doom_snapshots(self, offsets: Iterable[int]) -> None:
        """Rename the producer snapshots at these offsets for deletion. Raises KafkaError: KAFKA_STORAGE_ERROR."""
        for offset in offsets:
            self._log.segment_list.doomed += doom(snapshot_path(self._log.directory, offset))

    def _producers_durable_without(self) -> int:
        """Return the offset below which segments have no producer state that is not durable elsewhere."""
        log = self._log
        told = told_by_batches_from(log.producers, log.log_end_offset)
        for following, segment in pairwise(reversed(log.segment_list.copy())):
            if following.base_offset <= told:
                break
            if segment.synced and snapshot_path(log.directory, following.base_offset).exists():
                return following.base_offset
        return told

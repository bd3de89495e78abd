"""Changes of a log's end other than appends: it is cut off, restarted at another offset, or moved over a gap."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ...protocol.errors import KafkaError
from .producers.producer_loading import load_producers
from .producers.producer_snapshot import drop_snapshots_above, snapshot_offsets
from .storage_errors import disk_error

if TYPE_CHECKING:
    from .durability import Durability
    from .open_log import OpenLog
    from .segments.segment import Segment


class Truncation:
    """The methods that truncate one log.

    When a call returns, the disk holds neither the removed records nor their leader epochs and producer state.
    """

    __slots__ = ("_durability", "_log")

    def __init__(self, log: OpenLog, durability: Durability) -> None:
        self._log = log
        self._durability = durability

    def leave_out_to(self, offset: int) -> None:
        """Make the log end at `offset`, with a gap after its last record, because the log is a copy of a log with this
        gap. Raises KafkaError: KAFKA_STORAGE_ERROR; the log is then offline."""
        log = self._log
        log.check_usable()
        log.on_move()
        active = log.segment_list.active
        try:
            active.finish()
            log.segment_list.note_gap(log.log_end_offset, offset)
            log.segment_list.start_segment(offset, active.created_ms)
        except KafkaError as error:
            log.fail(error)
            raise
        log.log_end_offset = offset

    def truncate_to(self, offset: int) -> None:
        """Cut the log so that it ends at `offset`, or at the start of the batch that contains it. Raises KafkaError:
        KAFKA_STORAGE_ERROR; the log is then offline."""
        log, segments = self._log, self._log.segment_list
        log.check_usable()
        if offset >= log.log_end_offset:
            return
        if offset < segments.first_base:
            self.truncate_fully_and_start_at(offset)
            return
        segment, position, cut = segments.find_cut(offset)
        left_end = segment.end_before(position) if segments.has_gaps else cut
        with self._cutting(min(cut, left_end)):
            if left_end == cut:
                segments.forget_gaps(cut)
                self._truncate(segment, position, cut)
            else:
                # There is a gap before the cut, so only the name of a new segment can record the log's end.
                segments.note_gap(left_end, cut)
                self._truncate(segment, position, cut)
                segment.finish()
                segments.start_segment(cut, segment.created_ms)

    def _truncate(self, segment: Segment, position: int, cut: int) -> None:
        log = self._log
        log.segment_list.cut(segment, position, cut)
        drop_snapshots_above(log.directory, cut)
        self._durability.sync_cut(segment.path)
        log.log_end_offset = cut
        self._durability.end_cut()
        if cut < log.log_start_offset:
            log.log_start_offset, log.start_moved = cut, True
        log.leader_epochs.truncate_from_end(cut)
        if not log.producers.forget_from(cut):
            now_ms = max((entry.last_seen_ms for entry in log.producers.entries()), default=0)
            log.producers = load_producers(
                log.directory,
                log.segment_list.copy(),
                snapshot_offsets(log.directory),
                log.log_end_offset,
                log.config,
                now_ms,
            )

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop all records and continue, empty, at `offset`. Raises KafkaError: KAFKA_STORAGE_ERROR; the log is then
        offline."""
        log = self._log
        log.check_usable()
        now_ms = log.segment_list.active.created_ms
        with self._cutting(min(offset, log.log_start_offset)):
            log.segment_list.forget_gaps(-1)
            log.segment_list.replace_all(offset, now_ms)
            drop_snapshots_above(log.directory, -1)
            self._durability.sync_cut(log.segment_list.active.path)
        log.log_start_offset = log.log_end_offset = offset
        log.start_moved = True
        log.leader_epochs.clear()
        log.producers.clear()
        self._durability.end_cut()

    @contextmanager
    def _cutting(self, offset: int) -> Iterator[None]:
        """Announce that records from `offset` on are cut within the block. After an error it is uncertain which records
        are gone, so the log goes offline."""
        self._durability.begin_cut(offset)
        self._log.on_move()
        try:
            yield
        except OSError as error:
            failure = disk_error("truncate", self._log.directory, error)
            self._log.fail(failure)
            raise failure from error
        except KafkaError as error:
            self._log.fail(error)
            raise

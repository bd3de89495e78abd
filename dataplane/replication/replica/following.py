"""The log of a replica that does not lead. Its end and its high watermark are determined by another replica."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ....protocol.records.record_batch import parse_header
from ...log.copies import end_at
from ..roles.follower import (
    EpochEnd,
    FollowerState,
    follower_high_watermark,
    restart_offset,
    truncation_offset,
)

if TYPE_CHECKING:
    from ...log import PartitionLog
    from .flushing import Flushing
    from .readers import Readers


class FollowingReplica(Protocol):
    """The replica whose log follows a leader: its log, its role as a follower, and its leader epochs."""

    @property
    def log(self) -> PartitionLog: ...
    @property
    def follower(self) -> FollowerState | None: ...
    def end_of_epoch(self, epoch: int) -> EpochEnd: ...


class Clock(Protocol):
    """The broker's clock."""

    def wall_ms(self) -> int:
        """Return milliseconds since 1970."""
        ...


class Following:
    """The follower's operations on one replica's log. Invariant: log start offset <= high watermark <= log end
    offset."""

    __slots__ = ("_clock", "_flushing", "_readers", "_replica", "high_watermark")

    def __init__(
        self,
        replica: FollowingReplica,
        clock: Clock,
        flushing: Flushing,
        readers: Readers,
        high_watermark: int,
    ) -> None:
        self._replica = replica
        self._clock = clock
        self._flushing = flushing
        self._readers = readers
        log = replica.log
        self.high_watermark = max(log.log_start_offset, min(high_watermark, log.log_end_offset))
        """High watermark known to this replica. While the replica leads, its leadership has the current value."""

    def append_fetched(
        self, records: memoryview | None, leader_high_watermark: int, leader_log_start_offset: int
    ) -> None:
        """Append the leader's records unchanged, and follow its high watermark and log start offset.

        Records count as acknowledged when the next fetch begins after them. With flush.messages=1 that fetch waits for
        the flush.
        """
        replica = self._replica
        log = replica.log
        if records is not None and len(records):
            if leader_log_start_offset >= log.log_end_offset > parse_header(records).base_offset:
                # The leader's log starts within its first batch, which it can only send as a whole.
                self._start_anew_at(leader_log_start_offset)
            assert replica.follower is not None
            log.append_as_follower(records, self._clock.wall_ms(), replica.follower.leader_epoch)
            self._flushing.grown()
        watermark = follower_high_watermark(self.high_watermark, leader_high_watermark, log.log_end_offset)
        moved = watermark != self.high_watermark
        self.high_watermark = watermark
        if moved:
            log.on_move()
            log.transactions.high_watermark_moved(watermark)
        if leader_log_start_offset > log.log_start_offset:
            log.advance_log_start_offset(min(leader_log_start_offset, watermark))
            moved = True
        if moved:
            self._readers.wake()

    def truncate_diverging(self, leader_end: EpochEnd, leader_log_start_offset: int) -> None:
        """Truncate the log where the leader's diverges. The caller has checked that the answer belongs to this leader
        epoch."""
        log = self._replica.log
        ours = self._replica.end_of_epoch(leader_end.epoch)
        offset = truncation_offset(leader_end, ours, log.log_end_offset)
        if offset <= leader_log_start_offset and offset < log.log_end_offset:
            # The leader does not know where the logs diverged below its log start, so no record from there may stay.
            self._start_anew_at(leader_log_start_offset)
        else:
            self._truncated_to(max(offset, log.log_start_offset))

    def _truncated_to(self, offset: int) -> None:
        log = self._replica.log
        log.on_move()
        log.truncation.truncate_to(offset)
        # Epochs are truncated even if no record is: an epoch that this replica led without writing must be removed.
        log.leader_epochs.truncate_from_end(offset)
        self._flushing.cut()
        # A truncation within a batch removes the whole batch.
        self.high_watermark = min(self.high_watermark, log.log_end_offset)

    def restart_at_leaders_start(self, leader_log_start_offset: int) -> bool:
        """Start again at the leader's log start offset after OFFSET_OUT_OF_RANGE, if that is allowed. Returns whether
        the log was restarted."""
        log = self._replica.log
        offset = restart_offset(log.log_start_offset, log.log_end_offset, leader_log_start_offset)
        if offset is None:
            return False
        self._start_anew_at(offset)
        return True

    def _start_anew_at(self, offset: int) -> None:
        self._replica.log.truncation.truncate_fully_and_start_at(offset)
        self.high_watermark = offset
        self._flushing.begun_anew(offset)

    def end_at(self, offset: int) -> None:
        """Cut or empty a mirror's copy so that its log ends at `offset`. There the mirror, or the log of the copy's
        leader, begins or continues.
        """
        log = self._replica.log
        before = log.log_end_offset
        end_at(log, offset)
        self.high_watermark = max(log.log_start_offset, min(self.high_watermark, log.log_end_offset))
        if log.log_start_offset == log.log_end_offset:
            self._flushing.begun_anew(log.log_end_offset)
        elif log.log_end_offset < before:
            self._flushing.cut()
        else:
            self._flushing.grown()

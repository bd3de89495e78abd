"""How far the log of one replica is flushed, and what has it flushed: its topic's settings, or who acknowledges only
what is on the disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .flush_schedule import NEVER, Flush, FlushSchedule

if TYPE_CHECKING:
    from ...log import PartitionLog
    from .settings import ReplicationSettings


class Flushing:
    """`flush` has the log flushed off the event loop, `flush_later` is called with milliseconds.

    Invariant: `flushed_offset` <= log end offset.
    """

    __slots__ = ("_flush_later", "_log", "_settings", "flush", "flushed_offset", "schedule")

    def __init__(
        self,
        log: PartitionLog,
        settings: ReplicationSettings,
        flush: Callable[[], None],
        flush_later: Callable[[int], None],
    ) -> None:
        self._log = log
        self._settings = settings
        self.flush = flush
        self._flush_later = flush_later
        self.schedule = FlushSchedule()
        self.flushed_offset = (
            log.recovery_point if settings.durable_before_acknowledged else log.log_end_offset
        )
        self._by_settings()

    def reconfigure(self, settings: ReplicationSettings) -> None:
        """Take new settings of the topic."""
        if settings.durable_before_acknowledged and not self._settings.durable_before_acknowledged:
            self.flushed_offset = self._log.log_end_offset
        self._settings = settings
        self._by_settings()

    def replace_log(self, log: PartitionLog) -> None:
        """Go on with a log that holds the same records in another folder."""
        self._log = log
        if self._settings.durable_before_acknowledged:
            self.flush()
        self._by_settings()

    def grown(self) -> None:
        """Something was appended. Need not be called while the end is below `schedule.look_at`, unless only what is
        flushed is acknowledged."""
        if self._settings.durable_before_acknowledged:
            self.flush()
        elif self._log.log_end_offset >= self.schedule.look_at:
            self._act(self.schedule.grown(self._log.recovery_point, self._log.log_end_offset))

    def flushed(self, offset: int) -> bool:
        """Everything below `offset` was on the disk; a cut since then has lowered the recovery point. True if more
        is flushed than before."""
        self._act(self.schedule.flushed(self._log.recovery_point, self._log.log_end_offset))
        offset = min(offset, self._log.recovery_point)
        if offset <= self.flushed_offset:
            return False
        self.flushed_offset = offset
        return True

    def time_over(self) -> None:
        """The milliseconds of `flush_later` have passed."""
        self._act(self.schedule.time_over(self._log.recovery_point, self._log.log_end_offset))

    def cut(self) -> None:
        """The end of the log was cut off."""
        end = self._log.log_end_offset
        self.flushed_offset = min(self.flushed_offset, end)
        self._act(self.schedule.flushed(self._log.recovery_point, end))

    def begun_anew(self, offset: int) -> None:
        """The log is empty, and goes on at `offset`."""
        self.flushed_offset = min(self._log.recovery_point, offset)
        self._act(self.schedule.flushed(offset, offset))
        if self._settings.durable_before_acknowledged:
            # To be empty up to there is acknowledged like records: power lost before would bring older ones back.
            self.flush()

    def _by_settings(self) -> None:
        settings, log = self._settings, self._log
        # What is flushed before it is acknowledged needs no other reason.
        messages, ms = (
            (NEVER, NEVER)
            if settings.durable_before_acknowledged
            else (settings.flush_messages, settings.flush_ms)
        )
        self._act(self.schedule.settings(messages, ms, log.recovery_point, log.log_end_offset))

    def _act(self, flush: Flush) -> None:
        if flush is Flush.NOW:
            self.flush()
        elif flush is Flush.LATER:
            self._flush_later(self._settings.flush_ms)

"""Flush state of one replica's log: the flushed offset, and the flushes that the topic's settings or acknowledgements
require."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .flush_schedule import NEVER, Flush, FlushSchedule

if TYPE_CHECKING:
    from ...log import PartitionLog
    from .settings import ReplicationSettings


class Flushing:
    """The flush state of one log.

    `flush` flushes the log in a thread, `flush_later` is called with milliseconds. Invariant: `flushed_offset` <= log
    end offset.
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
        """Apply new topic settings: flush.messages and flush.ms."""
        if settings.durable_before_acknowledged and not self._settings.durable_before_acknowledged:
            self.flushed_offset = self._log.log_end_offset
        self._settings = settings
        self._by_settings()

    def replace_log(self, log: PartitionLog) -> None:
        """Continue with a log that replaces the replica's log: it has the same records in another data folder."""
        self._log = log
        if self._settings.durable_before_acknowledged:
            self.flush()
        self._by_settings()

    def grown(self) -> None:
        """Flush the log after an append, if its settings require that. The call may be omitted while the log end is
        below `schedule.look_at`, unless only flushed records are acknowledged.
        """
        if self._settings.durable_before_acknowledged:
            self.flush()
        elif self._log.log_end_offset >= self.schedule.look_at:
            self._act(self.schedule.grown(self._log.recovery_point, self._log.log_end_offset))

    def flushed(self, offset: int) -> bool:
        """Note that a flush up to `offset` has ended. The offset counts only up to the recovery point, which a
        truncation since then has lowered. Returns whether the flushed offset rose.
        """
        self._act(self.schedule.flushed(self._log.recovery_point, self._log.log_end_offset))
        offset = min(offset, self._log.recovery_point)
        if offset <= self.flushed_offset:
            return False
        self.flushed_offset = offset
        return True

    def time_over(self) -> None:
        """Flush the log if that is due: flush.ms have passed since the schedule asked for this call."""
        self._act(self.schedule.time_over(self._log.recovery_point, self._log.log_end_offset))

    def cut(self) -> None:
        """Lower the flushed offset to the log end, after the end of the log was cut off."""
        end = self._log.log_end_offset
        self.flushed_offset = min(self.flushed_offset, end)
        self._act(self.schedule.flushed(self._log.recovery_point, end))

    def begun_anew(self, offset: int) -> None:
        """Start the flush state again for a log that lost all records and continues at `offset`."""
        self.flushed_offset = min(self._log.recovery_point, offset)
        self._act(self.schedule.flushed(offset, offset))
        if self._settings.durable_before_acknowledged:
            # An empty log up to this offset is acknowledged like records are. A power loss before the flush would bring
            # older records back.
            self.flush()

    def _by_settings(self) -> None:
        settings, log = self._settings, self._log
        # If records are flushed before they are acknowledged, the schedule has no purpose.
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

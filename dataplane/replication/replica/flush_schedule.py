"""The schedule of flushes: after a number of records (flush.messages), or a time after one (flush.ms). Pure.

As in Kafka, acknowledgements do not wait for these flushes. Kafka flushes within the append that reaches the limit.
Here the flush begins at that append, in a thread, and records appended meanwhile count towards the next one. flush.ms
counts from the first unflushed record, so no other setting for a check interval is needed.
"""

from __future__ import annotations

from enum import Enum

from ....protocol.settings.config_key import LONG_MAX

NEVER = LONG_MAX


class Flush(Enum):
    """The action that the schedule asks for: no flush yet, a flush now, or a flush after flush.ms."""

    NOT_YET = "nothing"
    NOW = "flush it"
    LATER = "flush it when flush.ms have passed"


class FlushSchedule:
    """The schedule by which one log is flushed, from flush.messages and flush.ms. The owner compares the log end with
    `look_at` before it calls `grown`, since comparing is cheaper than a call. Below `look_at` no flush is due.
    """

    __slots__ = ("_messages", "_timed", "_waiting", "look_at")

    def __init__(self) -> None:
        self._messages = NEVER
        self._timed = False
        self._waiting = False
        self.look_at = NEVER
        """Log end from which on `grown` must be called."""

    def settings(self, messages: int, ms: int, flushed: int, end: int) -> Flush:
        """Apply new values of flush.messages and flush.ms, and return the flush that is due. The log ends at `end` and
        is flushed up to `flushed`.
        """
        self._messages = messages
        self._timed = ms < NEVER
        return self.flushed(flushed, end)

    def grown(self, flushed: int, end: int) -> Flush:
        """Return the flush that is due after an append. The log ends at `end` and is flushed up to `flushed`."""
        if end - flushed >= self._messages:
            # Later records belong to the next flush, whenever this one ends.
            self.look_at = end + self._messages
            return Flush.NOW
        if self._timed and not self._waiting and end > flushed:
            self._waiting = True
            self.look_at = flushed + self._messages
            return Flush.LATER
        self.look_at = self._next(flushed)
        return Flush.NOT_YET

    def time_over(self, flushed: int, end: int) -> Flush:
        """Return the flush that is due when flush.ms have passed since this schedule returned `LATER`."""
        self._waiting = False
        if end > flushed and self._timed:
            return Flush.NOW
        self.look_at = self._next(flushed)
        return Flush.NOT_YET

    def flushed(self, flushed: int, end: int) -> Flush:
        """Return the flush that is due after a flush has ended or the log was truncated. The log ends at `end` and is
        flushed up to `flushed`.
        """
        self.look_at = self._next(flushed)
        return self.grown(flushed, end) if end >= self.look_at else Flush.NOT_YET

    def _next(self, flushed: int) -> int:
        if self._timed and not self._waiting:
            return flushed + 1
        return flushed + self._messages

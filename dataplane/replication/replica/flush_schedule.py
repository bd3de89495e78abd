"""When a log is flushed: after so many records (flush.messages), or so long after one (flush.ms). Pure.

As in Kafka, who waits for an acknowledgement does not wait for this. Kafka flushes within the append that is one
too many; here it begins there, off the event loop, and what is appended meanwhile counts towards the next one.
flush.ms is counted from the first record that is not flushed, so that no other setting says how often to look.
"""

from __future__ import annotations

from enum import Enum

from ....protocol.settings.config_key import LONG_MAX

NEVER = LONG_MAX


class Flush(Enum):
    """What is to be done about a log that grew."""

    NOT_YET = "nothing"
    NOW = "flush it"
    LATER = "flush it when flush.ms have passed"


class FlushSchedule:
    """Of one log. Asking costs more than comparing its end with `look_at`, below which nothing is due."""

    __slots__ = ("_messages", "_timed", "_waiting", "look_at")

    def __init__(self) -> None:
        self._messages = NEVER
        self._timed = False
        self._waiting = False
        self.look_at = NEVER
        """End of the log from which on `grown` wants to be asked."""

    def settings(self, messages: int, ms: int, flushed: int, end: int) -> Flush:
        """Go by these from now on; the log ends at `end` and is flushed up to `flushed`."""
        self._messages = messages
        self._timed = ms < NEVER
        return self.flushed(flushed, end)

    def grown(self, flushed: int, end: int) -> Flush:
        """The log ends at `end` now, and is flushed up to `flushed`."""
        if end - flushed >= self._messages:
            # What comes behind is for the next flush, whenever this one ends.
            self.look_at = end + self._messages
            return Flush.NOW
        if self._timed and not self._waiting and end > flushed:
            self._waiting = True
            self.look_at = flushed + self._messages
            return Flush.LATER
        self.look_at = self._next(flushed)
        return Flush.NOT_YET

    def time_over(self, flushed: int, end: int) -> Flush:
        """flush.ms have passed since `LATER` was returned."""
        self._waiting = False
        if end > flushed and self._timed:
            return Flush.NOW
        self.look_at = self._next(flushed)
        return Flush.NOT_YET

    def flushed(self, flushed: int, end: int) -> Flush:
        """A flush has ended, or the log was cut."""
        self.look_at = self._next(flushed)
        return self.grown(flushed, end) if end >= self.look_at else Flush.NOT_YET

    def _next(self, flushed: int) -> int:
        if self._timed and not self._waiting:
            return flushed + 1
        return flushed + self._messages

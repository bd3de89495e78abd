"""The leader's view of one follower's log, which decides what to send next. Pure.

`PROBE`: the position is a guess, so one message is sent at a time. `STREAM`: entries are sent without waiting, up to a
window of bytes that are not yet durable there. `SNAPSHOT`: the follower needs entries that the log no longer has.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum


class Mode(Enum):
    """The mode of replication to a follower: `PROBE`, `STREAM` or `SNAPSHOT`."""

    PROBE = "probe"
    STREAM = "stream"
    SNAPSHOT = "snapshot"


@dataclass(slots=True)
class ReplicationProgress:
    """A leader's record of one follower's position in the log, while the follower's connection and this leadership
    last.

    Invariant: `durable_index < next_index`. `generation` rises whenever the leader moves back, so that refusals of
    earlier messages can be distinguished from new ones.
    """

    next_index: int
    durable_index: int = 0
    mode: Mode = Mode.PROBE
    generation: int = 1
    awaiting_reply: bool = False
    in_flight_bytes: int = 0
    restored: bool = False
    """True if the follower needed a snapshot. If the entries after it were dropped too soon, it would need another."""
    _in_flight: deque[tuple[int, int]] = field(default_factory=deque)

    def sent(self, last_index: int, size: int) -> None:
        """Note that entries up to `last_index`, with `size` bytes, have been sent."""
        if self.mode is Mode.PROBE:
            self.awaiting_reply = True
        else:
            self.next_index = last_index + 1
        if size:
            self._in_flight.append((last_index, size))
            self.in_flight_bytes += size

    def confirmed(self, next_index: int) -> bool:
        """Note that the follower has stored everything below `next_index` durably. Return True if its durable index
        rose."""
        while self._in_flight and self._in_flight[0][0] < next_index:
            self.in_flight_bytes -= self._in_flight.popleft()[1]
        if self.mode is Mode.PROBE:
            self.mode = Mode.STREAM
            self.awaiting_reply = False
            self._forget_in_flight()
            self.next_index = next_index
        self.next_index = max(self.next_index, next_index)
        news = next_index - 1 > self.durable_index
        self.durable_index = max(self.durable_index, next_index - 1)
        return news

    def refused(self, next_index: int, generation: int) -> bool:
        """Move `next_index` back because the follower's log does not match there. Return False for an outdated refusal,
        of another generation."""
        if generation != self.generation or self.mode is Mode.SNAPSHOT:
            return False
        self._go_back(max(self.durable_index + 1, min(next_index, self.next_index)))
        return True

    def begin_snapshot(self) -> None:
        """Stop sending entries until a snapshot is installed."""
        self.mode = Mode.SNAPSHOT
        self._forget_in_flight()

    def snapshot_installed(self, index: int) -> None:
        """Continue replication after the snapshot's `index`, with a probe."""
        self.restored = True
        self._go_back(max(self.durable_index, index) + 1)

    def _go_back(self, next_index: int) -> None:
        self.mode = Mode.PROBE
        self.generation += 1
        self.awaiting_reply = False
        self.next_index = next_index
        self._forget_in_flight()

    def _forget_in_flight(self) -> None:
        self._in_flight.clear()
        self.in_flight_bytes = 0

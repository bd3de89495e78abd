"""Telling the quorum's leader where logs end: one piece with a heartbeat, and the next soon after it was answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ...protocol.messages.quorum_session import PartitionProgress
from .progress import LogEnds, ToldProgress

LOGS_AT_ONCE = 1000
"""Of so many the broker tells in some five milliseconds, and the leader hears of them in as long."""
NEXT_AFTER_S = 0.02


class LogTelling:
    """`tell` has a heartbeat sent to the leader, which asks for a piece.

    A leader hears of all logs of all brokers when it is new, and that may be more than it can take in. So each broker
    waits until the leader has answered the piece before: what gathers would keep its loop from everything else.
    """

    def __init__(self, log_ends: Callable[[], LogEnds], tell: Callable[[], None]) -> None:
        self._told = ToldProgress(log_ends)
        self._tell = tell
        self._at_most: int | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._unanswered = 0
        """Number of the heartbeat with the last piece, if more are to follow and it was not answered; 0 else."""

    @property
    def told_offset(self) -> int:
        """The leader has been told of all logs as of the image at this offset, or later; 0 before it was."""
        return self._told.told_offset

    @property
    def is_amid_round(self) -> bool:
        """Whether more pieces are to follow: the heartbeat with the last one has to be answered."""
        return self._told.is_amid_round

    def new_leader(self, *, takes_pieces: bool) -> None:
        """It is told everything: in one piece if it has an older version, which would take the first for all."""
        self._told.clear()
        self._unanswered = 0
        self._at_most = LOGS_AT_ONCE if takes_pieces else None

    def piece(self, image_offset: int, *, waits: bool) -> list[PartitionProgress] | None:
        """What comes next, for a heartbeat that is sent now; None if it `waits` while a piece is not answered. Those
        that are sent at each interval do not: a leader may not answer at all yet."""
        if waits and self._unanswered:
            return None
        self._unanswered = 0
        return self._told.news(image_offset, self._at_most)

    def sent(self, number: int) -> None:
        """The heartbeat of that number has the piece, and more are to follow."""
        self._unanswered = number

    def answered(self, number: int) -> None:
        """The leader has answered the heartbeat of that number."""
        if 0 < self._unanswered <= number:
            self._unanswered = 0
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(NEXT_AFTER_S, self._go_on)

    def _go_on(self) -> None:
        self._timer = None
        if self._told.is_amid_round:
            self._tell()

    def stop(self) -> None:
        """Go on with nothing."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

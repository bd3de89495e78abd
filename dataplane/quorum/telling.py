"""LogTelling the quorum's leader where logs end: one piece with a heartbeat, and the others soon after it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ...protocol.messages.quorum_session import PartitionProgress
from .progress import LogEnds, ToldProgress

LOGS_AT_ONCE = 1000
"""Of so many the broker tells in some five milliseconds, and the leader hears of them in as long."""
NEXT_AFTER_S = 0.02


class LogTelling:
    """`tell` has a heartbeat sent to the leader, which asks for a piece."""

    def __init__(self, log_ends: Callable[[], LogEnds], tell: Callable[[], None]) -> None:
        self._told = ToldProgress(log_ends)
        self._tell = tell
        self._at_most: int | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def told_offset(self) -> int:
        """The leader has been told of all logs as of the image at this offset, or later; 0 before it was."""
        return self._told.told_offset

    def new_leader(self, *, takes_pieces: bool) -> None:
        """It is told everything: in one piece if it has an older version, which would take the first for all."""
        self._told.clear()
        self._at_most = LOGS_AT_ONCE if takes_pieces else None

    def piece(self, image_offset: int) -> list[PartitionProgress]:
        """What comes next, for a heartbeat that is sent now."""
        news = self._told.news(image_offset, self._at_most)
        if self._told.is_amid_round and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(NEXT_AFTER_S, self._go_on)
        return news

    def _go_on(self) -> None:
        self._timer = None
        if self._told.is_amid_round:
            self._tell()

    def stop(self) -> None:
        """Go on with nothing."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

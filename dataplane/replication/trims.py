"""Who waits until no live replica of a partition holds records below an offset (DeleteRecords)."""

from __future__ import annotations

from collections.abc import Callable

from ...protocol.errors import ErrorCode

Trimmed = Callable[[ErrorCode], None]


class Trims:
    """The waiting of one leadership. Each is called once; a deadline is the caller's, who may come and go."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[tuple[int, Trimmed]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, offset: int, done: Trimmed) -> None:
        """Call `done` when the low watermark is at `offset`."""
        self._waiting.append((offset, done))

    def discard(self, done: Trimmed) -> None:
        """It waits no longer."""
        self._waiting = [waiting for waiting in self._waiting if waiting[1] is not done]

    def reached(self, low_watermark: int) -> None:
        """No live replica holds records below `low_watermark`."""
        waiting, self._waiting = self._waiting, []
        for offset, done in waiting:
            if offset <= low_watermark:
                done(ErrorCode.NONE)
            else:
                self._waiting.append((offset, done))

    def failed(self, error: ErrorCode) -> None:
        """The leadership is over."""
        waiting, self._waiting = self._waiting, []
        for _, done in waiting:
            done(error)

"""Who waits for the high watermark of one replica: producers with acks=all, and whoever else must know that what was
appended stays."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from ....protocol.errors import ErrorCode

Acknowledged = Callable[[ErrorCode], None]
_Waiting = deque[tuple[int, Acknowledged]]

_NOBODY: Final = _Waiting()
"""Stays empty. A deque takes 0.8 KB, and brokers have thousands of replicas that nobody waits for."""


class Acknowledgements:
    """In offset order. Whoever waits is called once; a deadline is the caller's, who may come and go."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting = _NOBODY

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def wait(self, offset: int, done: Acknowledged) -> None:
        """Call `done` once the high watermark reaches `offset`, which it has not yet."""
        waiting = self._waiting
        if waiting is _NOBODY:
            waiting = self._waiting = _Waiting()
        if not waiting or waiting[-1][0] <= offset:
            waiting.append((offset, done))
        else:
            # A duplicate waits for the offset of the original, which may lie below those already waiting.
            place = sum(1 for already, _ in waiting if already <= offset)
            waiting.insert(place, (offset, done))

    def reached(self, high_watermark: int) -> None:
        """The high watermark is there."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= high_watermark:
            waiting.popleft()[1](ErrorCode.NONE)

    def failed(self, error: ErrorCode) -> None:
        """Nobody needs to wait any more: the outcome is unknown."""
        waiting, self._waiting = self._waiting, _NOBODY
        for _, done in waiting:
            done(error)

    def check(self, replica: object, high_watermark: int, log_end_offset: int) -> None:
        """AssertionError if somebody waits for what has come, or for what nobody has appended."""
        waiting = [offset for offset, _ in self._waiting]
        if waiting != sorted(waiting) or (waiting and not high_watermark < waiting[0]):
            raise AssertionError(
                f"{replica!r}: at high watermark {high_watermark} somebody waits for {waiting}"
            )
        if waiting and waiting[-1] > log_end_offset:
            raise AssertionError(
                f"{replica!r}: somebody waits for {waiting[-1]}, past the log end {log_end_offset}"
            )

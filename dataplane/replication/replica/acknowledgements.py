"""Callbacks that wait for the high watermark of one replica: producers with acks=all, and other code that must know
that appended records stay."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from ....protocol.errors import ErrorCode

Acknowledged = Callable[[ErrorCode], None]
_Waiting = deque[tuple[int, Acknowledged]]

_NO_CALLBACKS: Final = _Waiting()
"""The empty queue shared by all replicas without waiting callbacks; it must stay empty. A deque takes 0.8 KB, and
brokers have thousands of such replicas."""


class Acknowledgements:
    """The callbacks that wait for a replica's high watermark, in offset order. Each is called once. Callers set their
    own deadlines.
    """

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting = _NO_CALLBACKS

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def wait(self, offset: int, done: Acknowledged) -> None:
        """Call `done` once the high watermark reaches `offset`, which must be above the present high watermark."""
        waiting = self._waiting
        if waiting is _NO_CALLBACKS:
            waiting = self._waiting = _Waiting()
        if not waiting or waiting[-1][0] <= offset:
            waiting.append((offset, done))
        else:
            # A duplicate waits for the offset of the original, which may be below the offsets already waited for.
            place = sum(1 for already, _ in waiting if already <= offset)
            waiting.insert(place, (offset, done))

    def reached(self, high_watermark: int) -> None:
        """Call the callbacks that waited for offsets up to the new high watermark, with NONE."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= high_watermark:
            waiting.popleft()[1](ErrorCode.NONE)

    def failed(self, error: ErrorCode) -> None:
        """Call all callbacks with an error. It leaves open whether their records will be committed."""
        waiting, self._waiting = self._waiting, _NO_CALLBACKS
        for _, done in waiting:
            done(error)

    def check(self, replica: object, high_watermark: int, log_end_offset: int) -> None:
        """Check the invariants of the queue of callbacks. Raises AssertionError if a callback waits for an offset that
        was reached, or was never appended.
        """
        waiting = [offset for offset, _ in self._waiting]
        if waiting != sorted(waiting) or (waiting and not high_watermark < waiting[0]):
            raise AssertionError(
                f"{replica!r}: at high watermark {high_watermark} somebody waits for {waiting}"
            )
        if waiting and waiting[-1] > log_end_offset:
            raise AssertionError(
                f"{replica!r}: somebody waits for {waiting[-1]}, past the log end {log_end_offset}"
            )

"""Times at which the states of ranges end, in a compact queue: 24 bytes a range."""

from __future__ import annotations

from array import array
from bisect import bisect_right


class Deadlines:
    """Deadlines of ranges of offsets, in the order of time. A deadline stays until its time even if its range has
    changed, so a reader compares the range."""

    __slots__ = ("_firsts", "_head", "_lasts", "_times")

    def __init__(self) -> None:
        self._times = array("q")
        self._firsts = array("q")
        self._lasts = array("q")
        # Entries before this index have been removed.
        self._head = 0

    def __len__(self) -> int:
        return len(self._times) - self._head

    def add(self, time_ms: int, first: int, last: int) -> None:
        """Add the deadline of a range. Deadlines mostly come in the order of time."""
        if len(self) == 0 or time_ms >= self._times[-1]:
            self._times.append(time_ms)
            self._firsts.append(first)
            self._lasts.append(last)
            return
        index = bisect_right(self._times, time_ms, lo=self._head)
        self._times.insert(index, time_ms)
        self._firsts.insert(index, first)
        self._lasts.insert(index, last)

    def earliest(self) -> tuple[int, int, int] | None:
        """Return the earliest deadline with the first and last offset of its range; None if there is none."""
        head = self._head
        if head == len(self._times):
            return None
        return self._times[head], self._firsts[head], self._lasts[head]

    def pop(self) -> None:
        """Remove the earliest deadline."""
        self._head += 1
        if 2 * self._head >= len(self._times):
            for entries in (self._times, self._firsts, self._lasts):
                del entries[: self._head]
            self._head = 0

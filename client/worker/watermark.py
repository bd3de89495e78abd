"""The finished offsets of one partition: the lowest unfinished offset, and the runs of finished offsets beyond it.
Pure.

The watermark is the offset to commit. Offsets without a record (markers, compacted records) count with the record
before them, so that they make no runs of their own.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from .commit_metadata import EpochStep, Run


class FinishedOffsets:
    """The offsets of a partition that are finished, from the place on at which reading began."""

    def __init__(self, begin: int, runs: Iterable[Run] = (), epochs: Sequence[EpochStep] = ()) -> None:
        """`runs` and `epochs` are those of an earlier reader, beyond the offset `begin` that it committed."""
        self.position = begin
        """The lowest offset that was not taken yet."""
        self._low = begin
        # Invariant: low < starts[0] < ends[0] < starts[1] < ends[1] < ...; all offsets before `low` are finished.
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in runs:
            self._add(start, end)
        self._told_end = self._ends[-1] if self._ends else self._low
        """The end of the runs that an earlier reader told; they count only for records of the told epochs."""
        self._epochs: list[EpochStep] = list(epochs)
        self._gap_ends: dict[int, int] = {}
        """The unfinished offsets before a gap, each with the offset of the next record after it."""
        self._last: int | None = None
        self.unfinished = 0
        """The number of offsets that were taken and are not finished."""

    @property
    def watermark(self) -> int:
        """The offset before which everything is finished."""
        return self._low if self._low < self.position else self.position

    @property
    def run_count(self) -> int:
        """The number of runs beyond the watermark."""
        return len(self._starts) + (self._low > self.position)

    @property
    def span(self) -> int:
        """The number of offsets from the watermark to the last one that is known."""
        return max(self.position, self._ends[-1] if self._ends else self._low) - self.watermark

    def runs(self) -> list[Run]:
        """Return the runs of finished offsets beyond the watermark."""
        ahead = [(self.position, self._low)] if self._low > self.position else []
        return ahead + list(zip(self._starts, self._ends, strict=True))

    def epochs(self) -> list[EpochStep]:
        """Return the leader epochs of the records from the watermark on."""
        watermark = self.watermark
        at = max(0, bisect_right(self._epochs, watermark, key=lambda step: step[0]) - 1)
        del self._epochs[:at]
        return [(max(start, watermark), epoch) for start, epoch in self._epochs]

    @property
    def epoch_count(self) -> int:
        """The number of changes of the leader epoch that are kept."""
        return len(self._epochs)

    def is_first(self, offset: int) -> bool:
        """Return whether this is the lowest offset that is not finished."""
        return offset <= self._low

    def fits(self, offset: int, epoch: int) -> bool:
        """Return whether a record is the one that an earlier reader has seen at its offset. Without such a report it
        is."""
        return offset >= self._told_end or self._epoch_at(offset) in (None, epoch)

    def cut(self, offset: int) -> None:
        """Forget all that an earlier reader told about offsets from this one on, since the log has changed there."""
        self._told_end = min(self._told_end, offset)
        self._low = min(self._low, max(offset, self.position))
        at = bisect_left(self._starts, offset)
        del self._starts[at:], self._ends[at:]
        if self._ends and self._ends[-1] > offset:
            self._ends[-1] = offset
        del self._epochs[bisect_left(self._epochs, offset, key=lambda step: step[0]) :]

    def take(self, offset: int, epoch: int) -> bool:
        """Take the next record, in the order of offsets. Return whether it was finished before."""
        assert offset >= self.position, f"{offset} was taken before {self.position}"
        if offset != self.position:
            self._fill_gap(offset)
        self.position = offset + 1
        if self._epoch_at(offset) != epoch:
            self._epochs.append((offset, epoch))
        self._last = offset
        if self._is_finished(offset):
            return True
        self.unfinished += 1
        return False

    def take_all(self, begin: int, end: int, epoch: int) -> bool:
        """Take the next records, at each offset from `begin` to before `end`. Return False, and take none, if an
        earlier reader may have told about them."""
        if begin < self._told_end:
            return False
        self.take(begin, epoch)
        self.unfinished += end - self.position
        self.position = end
        self._last = end - 1
        return True

    def finish(self, offset: int) -> None:
        """Mark a taken offset as finished. Raises KeyError for any other offset."""
        if offset >= self.position or self._is_finished(offset):
            raise KeyError(offset)
        self.unfinished -= 1
        self._add(offset, self._gap_ends.pop(offset, offset + 1))

    def finish_all(self, first: int, last: int, count: int) -> None:
        """Mark the `count` unfinished offsets from `first` to `last` as finished: all that were taken there."""
        end = self._gap_ends.pop(last, last + 1)
        for offset in [offset for offset in self._gap_ends if first <= offset < last]:
            del self._gap_ends[offset]
        self.unfinished -= count
        self._add(first, end)

    def _fill_gap(self, offset: int) -> None:
        """Count the offsets between the last record and the next one with the last record."""
        if self._last is not None and not self._is_finished(self._last):
            self._gap_ends[self._last] = offset
        else:
            self._add(self.position, offset)

    def _is_finished(self, offset: int) -> bool:
        if offset < self._low:
            return True
        at = bisect_right(self._starts, offset) - 1
        return at >= 0 and offset < self._ends[at]

    def _epoch_at(self, offset: int) -> int | None:
        if self._epochs and self._epochs[-1][0] <= offset:
            return self._epochs[-1][1]
        at = bisect_right(self._epochs, offset, key=lambda step: step[0]) - 1
        return self._epochs[at][1] if at >= 0 else None

    def _add(self, start: int, end: int) -> None:
        if start <= self._low:
            self._low = max(self._low, end)
            absorbed = bisect_right(self._starts, self._low) if self._starts else 0
            if absorbed:
                self._low = max(self._low, self._ends[absorbed - 1])
                del self._starts[:absorbed], self._ends[:absorbed]
            return
        low, high = bisect_left(self._ends, start), bisect_right(self._starts, end)
        if low < high:
            start, end = min(start, self._starts[low]), max(end, self._ends[high - 1])
        self._starts[low:high] = [start]
        self._ends[low:high] = [end]

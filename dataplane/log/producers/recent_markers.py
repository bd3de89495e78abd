"""The positions of the newest transaction markers of a log, by commit index.

Pure. Commit indexes rise along a log, so the first marker above a given index cuts the log in two: markers of all
earlier decisions are below it. Older markers are searched in the log itself, see `marker_search`.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from itertools import pairwise
from typing import Final, NamedTuple

from ....protocol.records.record import NO_COMMIT_INDEX

LISTED_MAX: Final = 4096


class FirstMarker(NamedTuple):
    """The first transaction marker above a commit index in a log. The log can be cut there: the markers of all earlier
    decisions are below it."""

    offset: int
    open_from: int
    """The start of the first transaction that is open just before the marker; the marker's offset if none is open."""
    least_offset: int
    """The offset after the last earlier marker that ended a transaction with data. Between this offset and the marker
    the log may be cut anywhere."""


class RecentMarkers:
    """The first marker of each commit index in one log.

    Several markers may share a commit index, since more than one writer of a transaction may have written to the log.
    """

    __slots__ = ("_commit_indexes", "_least_offsets", "_offsets", "_open_from", "unlisted_to")

    def __init__(self, unlisted_to: int = NO_COMMIT_INDEX) -> None:
        self.unlisted_to = unlisted_to
        """The highest commit index of markers that may be in the log without being listed. Invariant: listed markers
        have a higher index; indexes and offsets rise."""
        self._commit_indexes = array("q")
        self._offsets = array("q")
        self._open_from = array("q")
        self._least_offsets = array("q")

    @property
    def last_commit_index(self) -> int:
        """The highest commit index of any marker in the log."""
        return self._commit_indexes[-1] if self._commit_indexes else self.unlisted_to

    def note(self, commit_index: int, marker: FirstMarker) -> None:
        """Note a marker at the log end. It is ignored unless its commit index is higher than all before."""
        if commit_index <= self.last_commit_index:
            return
        if len(self._offsets) == LISTED_MAX:
            half = LISTED_MAX // 2
            self.unlisted_to = self._commit_indexes[half - 1]
            del self._commit_indexes[:half]
            del self._offsets[:half]
            del self._open_from[:half]
            del self._least_offsets[:half]
        self._commit_indexes.append(commit_index)
        self._offsets.append(marker.offset)
        self._open_from.append(marker.open_from)
        self._least_offsets.append(marker.least_offset)

    def knows(self, commit_index: int) -> bool:
        """Return whether all markers above the commit index are listed."""
        return commit_index >= self.unlisted_to

    def first_above(self, commit_index: int) -> FirstMarker | None:
        """Return the first marker above a commit index for which `knows` is true; None if none exists."""
        position = bisect_right(self._commit_indexes, commit_index)
        if position == len(self._offsets):
            return None
        return FirstMarker(self._offsets[position], self._open_from[position], self._least_offsets[position])

    def check(self, log_end_offset: int) -> None:
        """Raise AssertionError if this cannot be the state of a log that ends at `log_end_offset`."""
        indexes = [self.unlisted_to, *self._commit_indexes]
        offsets = [-1, *self._offsets, log_end_offset]
        for rising in (indexes, offsets):
            if any(before >= after for before, after in pairwise(rising)):
                raise AssertionError(f"recent markers: {rising} does not rise")
        for bounds in (self._open_from, self._least_offsets):
            if any(bound > offset for bound, offset in zip(bounds, self._offsets, strict=True)):
                raise AssertionError(f"recent markers: {bounds} are not all below {self._offsets}")

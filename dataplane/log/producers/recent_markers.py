"""Where the newest transaction markers of a log lie, by their commit index.

Pure. Commit indexes rise along a log, so the first marker above a given one cuts the log in two: what was decided up to
there lies below. Older markers are looked for in the log itself, see `marker_search`.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from itertools import pairwise
from typing import Final, NamedTuple

from ....protocol.records.record import NO_COMMIT_INDEX

LISTED_MAX: Final = 4096


class FirstMarker(NamedTuple):
    """The first marker above a commit index: where the log is cut."""

    offset: int
    open_from: int
    """Where the first transaction begins that is open just before the marker; the marker's own offset if none is."""
    least_offset: int
    """Behind the last marker before it that ended a transaction with data: between the two the log may be cut anywhere.
    """


class RecentMarkers:
    """Of each commit index its first marker, as more than one writer of a transaction may have written to the log."""

    __slots__ = ("_commit_indexes", "_least_offsets", "_offsets", "_open_from", "unlisted_to")

    def __init__(self, unlisted_to: int = NO_COMMIT_INDEX) -> None:
        self.unlisted_to = unlisted_to
        """The commit index up to which markers may be in the log that are not listed. Invariant: those that are listed
        have a higher one; indexes and offsets rise."""
        self._commit_indexes = array("q")
        self._offsets = array("q")
        self._open_from = array("q")
        self._least_offsets = array("q")

    @property
    def last_commit_index(self) -> int:
        """The highest of any marker."""
        return self._commit_indexes[-1] if self._commit_indexes else self.unlisted_to

    def note(self, commit_index: int, marker: FirstMarker) -> None:
        """A marker is at the log end. One that has no higher commit index than those before is passed over."""
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
        """Whether all markers above it are listed."""
        return commit_index >= self.unlisted_to

    def first_above(self, commit_index: int) -> FirstMarker | None:
        """The first marker above a commit index that this `knows`; None if there is none."""
        position = bisect_right(self._commit_indexes, commit_index)
        if position == len(self._offsets):
            return None
        return FirstMarker(self._offsets[position], self._open_from[position], self._least_offsets[position])

    def check(self, log_end_offset: int) -> None:
        """AssertionError if this cannot be what a log that ends there has."""
        indexes = [self.unlisted_to, *self._commit_indexes]
        offsets = [-1, *self._offsets, log_end_offset]
        for rising in (indexes, offsets):
            if any(one >= other for one, other in pairwise(rising)):
                raise AssertionError(f"recent markers: {rising} does not rise")
        for bounds in (self._open_from, self._least_offsets):
            if any(bound > offset for bound, offset in zip(bounds, self._offsets, strict=True)):
                raise AssertionError(f"recent markers: {bounds} are not all below {self._offsets}")

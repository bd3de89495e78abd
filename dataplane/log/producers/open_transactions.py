"""Transactions of a log that read-committed readers must not see yet: open transactions, and ended ones whose marker
may still be lost, since it is not below the high watermark.

Pure. The last stable offset is the lesser of the high watermark and the first offset of any of these transactions. In
other words, it is the start of the first transaction that was open when all records below the high watermark had been
appended.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Final, NamedTuple

from ....protocol.records.record import NO_COMMIT_INDEX, ControlRecord, ControlType
from ..segments.aborted_transaction import AbortedTransaction
from .recent_markers import FirstMarker, RecentMarkers

NOWHERE: Final = -1


class Ended(NamedTuple):
    """A transaction in a log that a marker has ended, by a commit or an abort."""

    marker_offset: int
    first_offset: int


_NONE: Final[deque[Ended]] = deque()
"""An empty deque, which is never changed. A deque takes 0.8 KB, and brokers have thousands of logs without
transactions."""


class OpenTransactions:
    """The open and recently ended transactions of one log. Offsets are noted in the order of the log.

    Ended transactions are kept until the high watermark has passed their marker. One is dropped earlier if a later one
    hides it, which began no later, and whose marker is further on.
    """

    __slots__ = ("_ended", "_open", "forgotten_below", "last_offset", "markers")

    def __init__(self) -> None:
        self._open: OrderedDict[int, int] = OrderedDict()  # producer id to first offset
        self._ended = _NONE
        # Invariant: the first offsets rise in both, and so do the marker offsets.
        self.forgotten_below = 0
        """The offset below which ended transactions are no longer known, so that a lower high watermark cannot be
        answered."""
        self.markers = RecentMarkers()
        """The positions of the newest markers."""
        self.last_offset = NOWHERE
        """Last offset of the newest transactional batch, as far as known; no transactional batch is above."""

    @property
    def open(self) -> Mapping[int, int]:
        """The first offset of each transaction without a marker by producer id, in the order of the log."""
        return MappingProxyType(self._open)

    @property
    def ended(self) -> tuple[Ended, ...]:
        """The ended transactions that are not forgotten yet. Their markers were not below the high watermark of the
        last call of `forget`."""
        return tuple(self._ended)

    @property
    def behind_last_end(self) -> int:
        """The offset after the last marker that ended a transaction with data; 0 if none exists."""
        return self._ended[-1].marker_offset + 1 if self._ended else self.forgotten_below

    @property
    def last_commit_index(self) -> int:
        """The highest commit index of any marker; commit indexes rise along a log."""
        return self.markers.last_commit_index

    @property
    def is_pristine(self) -> bool:
        """True if no transaction marker was ever noted."""
        return not self._ended and not self.forgotten_below and self.last_commit_index == NO_COMMIT_INDEX

    def begin(self, producer_id: int, first_offset: int) -> None:
        """Note the first batch of a transaction, at the log end."""
        self._open[producer_id] = first_offset

    def end(self, producer_id: int, marker: ControlRecord, offset: int) -> AbortedTransaction | None:
        """Note a marker at the log end. Returns the entry for the index of aborted transactions if the marker aborts a
        transaction with data, or else None."""
        self.last_offset = offset
        open_from = next(iter(self._open.values()), offset)
        self.markers.note(marker.commit_index, FirstMarker(offset, open_from, self.behind_last_end))
        first_offset = self._open.pop(producer_id, None)
        if first_offset is None:
            return None
        if self._ended is _NONE:
            self._ended = deque()
        ended = self._ended
        while ended and ended[-1].first_offset >= first_offset:
            ended.pop()
        ended.append(Ended(offset, first_offset))
        if marker.type is not ControlType.ABORT:
            return None
        stable = next(iter(self._open.values()), offset + 1)
        return AbortedTransaction(producer_id, first_offset, offset, stable)

    def forget(self, high_watermark: int) -> None:
        """Forget the ended transactions whose markers are below the high watermark."""
        ended = self._ended
        while ended and ended[0].marker_offset < high_watermark:
            self.forgotten_below = ended.popleft().marker_offset + 1

    def are_over(self, high_watermark: int) -> bool:
        """Return whether there is certainly no unstable offset, as in a log without transactions. A cheap check."""
        return not (self._open or self._ended) and high_watermark >= self.forgotten_below

    def first_unstable(self, high_watermark: int) -> int | None:
        """Return the first offset of the first transaction that is open, or whose marker is not below `high_watermark`;
        None if none exists. `high_watermark` must not be below `forgotten_below`."""
        ended = self._ended
        if ended:
            self.forget(high_watermark)
        first = next(iter(self._open.values()), None)
        if ended and (first is None or ended[0].first_offset < first):
            first = ended[0].first_offset
        return first

    def restore(
        self,
        open_: Iterable[tuple[int, int]],
        ended: Iterable[Ended],
        *,
        forgotten_below: int,
        last_commit_index: int,
    ) -> None:
        """Load the content of a snapshot; `open_` has (producer id, first offset) of the open transactions, in any
        order."""
        self._open = OrderedDict(sorted(open_, key=lambda transaction: transaction[1]))
        self._ended = deque(ended) or _NONE
        self.forgotten_below = forgotten_below
        self.markers = RecentMarkers(last_commit_index)

    def remember(self, earlier: OpenTransactions) -> None:
        """Take over the ended transactions of `earlier`, which has more of them for the same log."""
        self._ended = deque(earlier._ended) or _NONE
        self.forgotten_below = earlier.forgotten_below

    def clear(self) -> None:
        """Forget all transactions."""
        self.restore((), (), forgotten_below=0, last_commit_index=NO_COMMIT_INDEX)
        self.last_offset = NOWHERE

    def check(self, log_end_offset: int) -> None:
        """Raise AssertionError if this cannot be the state of a log that ends at `log_end_offset`."""
        self.markers.check(log_end_offset)
        firsts = list(self._open.values())
        if any(first >= following for first, following in pairwise(firsts)) or any(
            first >= log_end_offset for first in firsts
        ):
            raise AssertionError(f"open transactions begin at {firsts}, the log ends at {log_end_offset}")
        ended = list(self._ended)
        for before, after in pairwise(ended):
            if not (before.marker_offset < after.marker_offset and before.first_offset < after.first_offset):
                raise AssertionError(f"{after} does not follow {before}")
        if (
            ended
            and not self.forgotten_below <= ended[0].marker_offset <= ended[-1].marker_offset < log_end_offset
        ):
            raise AssertionError(
                f"markers at {ended[0].marker_offset} to {ended[-1].marker_offset} are not between "
                f"{self.forgotten_below} and the log end {log_end_offset}"
            )

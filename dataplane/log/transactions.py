"""The transactions in a log: the offset up to which read-committed readers may read, and the data that they skip."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .producers.marker_search import MarkerSearch
from .producers.producer_loading import load_transactions

if TYPE_CHECKING:
    from .open_log import OpenLog
    from .producers.recent_markers import FirstMarker
    from .segments.aborted_transaction import AbortedTransaction
    from .segments.log_slice import LogSlice


class LogTransactions:
    """The transactions of one log, for readers: which are open, and which data was aborted. Appends of markers are
    decided elsewhere."""

    __slots__ = ("_log",)

    def __init__(self, log: OpenLog) -> None:
        self._log = log

    @property
    def open(self) -> Mapping[int, int]:
        """The first offset of each transaction without a marker by producer id, in the order of the log. It may be
        below the log start by now."""
        return self._log.producers.transactions.open

    @property
    def last_commit_index(self) -> int:
        """The highest commit index of any appended marker, -1 if none exists. Commit indexes rise along a log: all
        transactions up to this index that concern this partition have their markers."""
        return self._log.producers.transactions.last_commit_index

    def marker_above(self, commit_index: int) -> FirstMarker | MarkerSearch | None:
        """Return the first marker in the log whose commit index is above `commit_index`; None if none exists; or a
        search for it in the log's files. It may be above the high watermark. All markers up to `commit_index` lie
        before it.

        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        markers = self._log.producers.transactions.markers
        if markers.knows(commit_index):
            return markers.first_above(commit_index)
        self._log.check_usable()
        return MarkerSearch(self._log.directory, self._log.segment_list.copy(), commit_index)

    def high_watermark_moved(self, high_watermark: int) -> None:
        """Forget the transactions that have ended below the high watermark. To be called on followers, too, otherwise
        they would accumulate there."""
        self._log.producers.transactions.forget(high_watermark)

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """Return the first readable offset of the first transaction that is open, or whose marker is not below
        `high_watermark`; None if there is no such transaction. It may be above the high watermark.

        The call is cheap, unless the high watermark is lower than before: then the log is read.

        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        transactions = self._log.producers.transactions
        if high_watermark < transactions.forgotten_below:
            self._log.check_usable()
            segments = self._log.segment_list.copy()
            transactions.remember(load_transactions(self._log.directory, segments, high_watermark))
        first = transactions.first_unstable(high_watermark)
        return None if first is None else max(first, self._log.log_start_offset)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Return the offset up to which a read-committed reader may read: the high watermark, or the first unstable
        offset.

        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        if self._log.producers.transactions.are_over(high_watermark):
            return high_watermark
        first = self.first_unstable_offset(high_watermark)
        return high_watermark if first is None else min(first, high_watermark)

    def aborted(self, fetch_offset: int, upper_bound_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that may have data from `fetch_offset` to below `upper_bound_offset`, in the
        order of their markers.

        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        return self._log.segment_list.aborted(fetch_offset, upper_bound_offset)

    def aborted_among(
        self, records: LogSlice, fetch_offset: int, last_stable_offset: int
    ) -> list[AbortedTransaction]:
        """Return the aborted transactions that may have data among `records`, in the order of their markers. The
        records were read from `fetch_offset` to below `last_stable_offset`.

        A few transactions may begin after the records, since the sparse index is used; Kafka does the same. Raises
        KafkaError: KAFKA_STORAGE_ERROR.
        """
        segments = self._log.segment_list
        if not segments.aborting:
            return []
        return self.aborted(fetch_offset, segments.bound_of(records, last_stable_offset))

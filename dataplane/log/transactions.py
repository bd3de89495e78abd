"""What a log has to say of the transactions in it: how far read-committed readers get, and what they leave out."""

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
    """A view of the log. Who appends which marker when is decided elsewhere."""

    __slots__ = ("_log",)

    def __init__(self, log: OpenLog) -> None:
        self._log = log

    @property
    def open(self) -> Mapping[int, int]:
        """First offset of the transactions without a marker by their producer id, in the order of the log. It may lie
        below the log start by now.
        """
        return self._log.producers.transactions.open

    @property
    def last_commit_index(self) -> int:
        """The highest commit index of any marker that was appended, -1 for none. They rise along a log: what was
        decided up to then, and concerns this partition, has its marker.
        """
        return self._log.producers.transactions.last_commit_index

    def marker_above(self, commit_index: int) -> FirstMarker | MarkerSearch | None:
        """The first marker with a higher commit index, None if there is none, or how to look for it in the files. It
        may lie above the high watermark. All markers up to `commit_index` lie below.

        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        markers = self._log.producers.transactions.markers
        if markers.knows(commit_index):
            return markers.first_above(commit_index)
        self._log.check_usable()
        return MarkerSearch(self._log.directory, self._log.segment_list.copy(), commit_index)

    def high_watermark_moved(self, high_watermark: int) -> None:
        """Forget the transactions that have ended below. To be called on followers too, lest they gather there."""
        self._log.producers.transactions.forget(high_watermark)

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """First readable offset of the first transaction that is open, or whose marker is not below
        `high_watermark`; None if there is none. It may lie above the high watermark.

        Costs next to nothing, unless the high watermark is lower than before: then the log is read.

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
        """Up to where a read-committed reader may get: the high watermark, or the first unstable offset.

        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        if self._log.producers.transactions.are_over(high_watermark):
            return high_watermark
        first = self.first_unstable_offset(high_watermark)
        return high_watermark if first is None else min(first, high_watermark)

    def aborted(self, fetch_offset: int, upper_bound_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions of which something may lie from `fetch_offset` to below `upper_bound_offset`,
        in the order of their markers.

        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        return self._log.segment_list.aborted(fetch_offset, upper_bound_offset)

    def aborted_among(
        self, records: LogSlice, fetch_offset: int, last_stable_offset: int
    ) -> list[AbortedTransaction]:
        """The aborted transactions of which something may lie among `records`, which were read from
        `fetch_offset` to below `last_stable_offset`, in the order of their markers. A few may begin behind, as
        that is looked up in the sparse index; Kafka does the same.

        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        segments = self._log.segment_list
        if not segments.aborting:
            return []
        return self.aborted(fetch_offset, segments.bound_of(records, last_stable_offset))

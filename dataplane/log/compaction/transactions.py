"""Transactions during compaction: data of aborted transactions is removed, and markers stay until their data is
removed.

Aborted transactions are found by the markers in the log itself. Batches are only cleaned below the last stable offset,
so each transaction with data in the cleaned range has its marker below the high watermark.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple


class AbortedRange(NamedTuple):
    """The range of an aborted transaction: data of `producer_id` from `first_offset` up to the marker at
    `marker_offset` is not valid."""

    producer_id: int
    first_offset: int
    marker_offset: int


class TransactionScan:
    """A scan that finds the aborted transactions in batches given in offset order. Transactions without data are
    ignored."""

    def __init__(self) -> None:
        self._open: dict[int, int] = {}
        self.aborted: list[AbortedRange] = []
        """The aborted transactions, in the order of their markers."""

    @property
    def open(self) -> bool:
        """True if a transaction with data has no marker among the batches given so far."""
        return bool(self._open)

    def data(self, producer_id: int, first_offset: int) -> None:
        """Note that a transactional data batch of this producer begins at `first_offset`. Its first batch opens the
        transaction."""
        self._open.setdefault(producer_id, first_offset)

    def marker(self, producer_id: int, offset: int, *, aborts: bool) -> None:
        """Note a marker at `offset` that ends this producer's transaction, by an abort or a commit."""
        first_offset = self._open.pop(producer_id, None)
        if aborts and first_offset is not None:
            self.aborted.append(AbortedRange(producer_id, first_offset, offset))


class TransactionFilter:
    """A filter that decides for each batch, in offset order, whether it may be removed (Kafka's
    `CleanedTransactionMetadata`).

    A batch that lost its records still counts as data. Without its marker a replay would take its transaction for an
    open one.
    """

    def __init__(self, aborted: Iterable[AbortedRange]) -> None:
        self._to_come = deque(sorted(aborted, key=lambda transaction: transaction.first_offset))
        self._aborted: set[int] = set()
        self._with_data: set[int] = set()

    def discards_data(self, producer_id: int, last_offset: int) -> bool:
        """Return whether a transactional data batch belongs to an aborted transaction."""
        to_come = self._to_come
        while to_come and to_come[0].first_offset <= last_offset:
            self._aborted.add(to_come.popleft().producer_id)
        self._with_data.add(producer_id)
        return producer_id in self._aborted

    def discards_marker(self, producer_id: int) -> bool:
        """Return whether the transaction that this marker ends had no data. Then the marker may be removed once its
        delete horizon has passed."""
        self._aborted.discard(producer_id)
        met = producer_id in self._with_data
        self._with_data.discard(producer_id)
        return not met

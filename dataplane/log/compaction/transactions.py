"""Transactions as compaction meets them: data of aborted ones goes, markers stay until their data is gone.

Which transactions were aborted is read from the markers in the log itself. A batch is only ever cleaned below
the last stable offset, so that each transaction with data in reach has its marker below the high watermark.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple


class AbortedRange(NamedTuple):
    """Data of `producer_id` from `first_offset` up to the marker at `marker_offset` does not count."""

    producer_id: int
    first_offset: int
    marker_offset: int


class TransactionScan:
    """Learns the aborted transactions from batches given in offset order. Those without data count for
    nothing.
    """

    def __init__(self) -> None:
        self._open: dict[int, int] = {}
        self.aborted: list[AbortedRange] = []
        """In the order of their markers."""

    @property
    def open(self) -> bool:
        """Whether some transaction's marker has not come yet."""
        return bool(self._open)

    def data(self, producer_id: int, first_offset: int) -> None:
        """A transactional data batch."""
        self._open.setdefault(producer_id, first_offset)

    def marker(self, producer_id: int, offset: int, *, aborts: bool) -> None:
        """A control batch that ends a transaction."""
        first_offset = self._open.pop(producer_id, None)
        if aborts and first_offset is not None:
            self.aborted.append(AbortedRange(producer_id, first_offset, offset))


class TransactionFilter:
    """Says of each batch, in offset order, whether its transaction lets it go (Kafka's
    `CleanedTransactionMetadata`).

    A batch that lost its records still counts as data: were its marker gone, a replay would take the
    transaction for an open one.
    """

    def __init__(self, aborted: Iterable[AbortedRange]) -> None:
        self._to_come = deque(sorted(aborted, key=lambda transaction: transaction.first_offset))
        self._aborted: set[int] = set()
        self._with_data: set[int] = set()

    def discards_data(self, producer_id: int, last_offset: int) -> bool:
        """Whether a transactional data batch belongs to an aborted transaction."""
        to_come = self._to_come
        while to_come and to_come[0].first_offset <= last_offset:
            self._aborted.add(to_come.popleft().producer_id)
        self._with_data.add(producer_id)
        return producer_id in self._aborted

    def discards_marker(self, producer_id: int) -> bool:
        """Whether no data of the transaction that this marker ends was met: the marker may go once its delete
        horizon has passed.
        """
        self._aborted.discard(producer_id)
        met = producer_id in self._with_data
        self._with_data.discard(producer_id)
        return not met

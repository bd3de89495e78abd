"""An aborted transaction, as an entry of a segment's transaction index."""

from __future__ import annotations

from typing import NamedTuple


class AbortedTransaction(NamedTuple):
    """The range of an aborted transaction: data of `producer_id` from `first_offset` to the marker at `last_offset` is
    not valid."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
    """The start of the first transaction that was open when this one ended; the offset after the marker if none was
    open. Transactions that are aborted later begin there or above."""

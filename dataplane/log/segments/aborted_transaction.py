"""A transaction that was aborted, as the transaction index of a segment has it."""

from __future__ import annotations

from typing import NamedTuple


class AbortedTransaction(NamedTuple):
    """What `producer_id` wrote from `first_offset` to the marker at `last_offset` does not count."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
    """Where the first transaction began that was open when this one ended; behind the marker if none was. Those
    that are aborted later begin there or above.
    """

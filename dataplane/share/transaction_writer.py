"""The producer in whose transaction the durable state of a share partition changes."""

from __future__ import annotations

from typing import NamedTuple


class TransactionWriter(NamedTuple):
    """A producer, by its transactional id, producer id and epoch."""

    transactional_id: str
    producer_id: int
    producer_epoch: int

"""A producer in whose transaction records are written, as requests name it."""

from __future__ import annotations

from typing import NamedTuple


class TransactionalProducer(NamedTuple):
    """A producer, by its transactional id, producer id and epoch."""

    transactional_id: str
    producer_id: int
    producer_epoch: int

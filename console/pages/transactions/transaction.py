"""The page of a transactional id: its newest transaction, and the state of its producer in each partition."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from ....client.admin import Admin, TransactionDescription, TransactionListing
from ....client.admin.transactions import Producers
from ....client.records import TopicPartition
from ....protocol.errors import KafkaError
from ...area import Paged, Rendered, Visit
from .listing import OPEN, TransactionRow, transaction_row


@dataclass(frozen=True, slots=True)
class OpenPartition:
    """A partition of an unfinished transaction as a table row: the transaction's first offset and its producer's last
    write there."""

    topic: str
    partition: int
    first_offset: int | None
    last_sequence: int | None
    last_write_s: float | None


@dataclass(frozen=True, slots=True)
class TransactionPage:
    """The data that the template of a transactional id's page shows."""

    row: TransactionRow
    started_s: float | None
    is_open: bool
    paged: Paged[TopicPartition]
    partitions: Sequence[OpenPartition]


def open_partition(name: TopicPartition, producer_id: int, reported: Producers) -> OpenPartition:
    """Return the table row of a transaction's partition; `reported` has the producers that each partition's leader
    reported."""
    producers = reported.get(name)
    found = None
    if not isinstance(producers, KafkaError) and producers is not None:
        found = next((producer for producer in producers if producer.producer_id == producer_id), None)
    if found is None:
        return OpenPartition(*name, None, None, None)
    start = found.transaction_start
    return OpenPartition(
        *name,
        None if start < 0 else start,
        None if found.last_sequence < 0 else found.last_sequence,
        None if found.last_ms < 0 else found.last_ms / 1000,
    )


async def described(admin: Admin, name: str) -> TransactionDescription:
    """Return the description of a transactional id's newest transaction. Raises KafkaError."""
    transaction = (await admin.describe_transactions([name]))[name]
    if isinstance(transaction, KafkaError):
        raise transaction
    return transaction


async def show(visit: Visit) -> Rendered:
    """Return the page of the transactional id that the query names.

    Leaders are asked only about the partitions on this page of the table.
    """
    transaction = await described(visit.admin, visit.exact("id"))
    paged = visit.paged(sorted(transaction.partitions))
    producers = await visit.admin.describe_producers(paged.rows) if paged.rows else {}
    now_s = time.time()
    model = TransactionPage(
        _row(transaction, now_s),
        None if transaction.started_ms < 0 else transaction.started_ms / 1000,
        transaction.state == OPEN,
        paged,
        [open_partition(partition, transaction.producer_id, producers) for partition in paged.rows],
    )
    return Rendered(f"Transactional id {transaction.transactional_id}", "transaction.html", model)


def _row(transaction: TransactionDescription, now_s: float) -> TransactionRow:
    listed = TransactionListing(
        transaction.transactional_id, transaction.producer_id, transaction.state, transaction.coordinator
    )
    return transaction_row(listed, {transaction.transactional_id: transaction}, now_s)

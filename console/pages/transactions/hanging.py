"""Hanging transactions: open in a partition, though no transactional id has them open, so that no producer ends
them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ....client.admin import HangingTransaction
from ....client.admin.transactions import MAX_TRANSACTION_TIMEOUT_MS
from ....client.records import TopicPartition
from ...area import BadQuestion, Paged, Rendered, Visit
from ...commands import command

PARTITIONS_MAX: Final = 5_000
"""The most partitions of one search: more would take longer than a page may."""


@dataclass(frozen=True, slots=True)
class HangingRow:
    """A hanging transaction as a table row.

    `silent_s` is the seconds since its producer last wrote. `command` is the shell command that aborts it with the
    cluster's secret.
    """

    topic: str
    partition: int
    producer_id: int
    epoch: int
    first_offset: int
    silent_s: float
    command: str


@dataclass(frozen=True, slots=True)
class HangingPage:
    """The data that the template of the page "Hanging transactions" shows.

    `looked_at` is the number of searched partitions; None before a search.
    """

    topic: str
    minutes: int
    looked_at: int | None
    paged: Paged[HangingTransaction] | None
    rows: Sequence[HangingRow]


def hanging_row(transaction: HangingTransaction, now_s: float) -> HangingRow:
    """Return the table row of a hanging transaction."""
    producer = transaction.producer
    return HangingRow(
        *transaction.partition,
        producer.producer_id,
        producer.producer_epoch,
        producer.transaction_start,
        max(0.0, now_s - producer.last_ms / 1000),
        command(
            "txn",
            "abort-hanging",
            names=[f"{transaction.partition.topic}:{transaction.partition.partition}"],
            options=["--producer-id", str(producer.producer_id), "--secret-file", "FILE"],
        ),
    )


async def show(visit: Visit) -> Rendered:
    """Return the page "Hanging transactions".

    It searches only on request, since each leader must return all its producers.
    """
    minutes = visit.number("minutes", MAX_TRANSACTION_TIMEOUT_MS // 60_000, most=10**6)
    topic = visit.text("topic")
    if visit.text("search") != "yes":
        return Rendered("Hanging transactions", "hanging.html", HangingPage(topic, minutes, None, None, ()))
    snapshot = await visit.sampler.snapshot()
    places = [
        TopicPartition(candidate.name, index)
        for candidate in snapshot.topics
        if not topic or candidate.name == topic
        for index in candidate.partitions
    ]
    if not places:
        raise BadQuestion(f"there is no topic {topic!r}" if topic else "there is no topic")
    if len(places) > PARTITIONS_MAX:
        raise BadQuestion(
            f"these are {len(places):,} partitions; a page looks at {PARTITIONS_MAX:,}: name a topic, or use "
            "`ottla txn find-hanging`"
        )
    found = await visit.admin.find_hanging(places, max_transaction_timeout_ms=minutes * 60_000)
    paged = visit.paged(found)
    rows = [hanging_row(transaction, time.time()) for transaction in paged.rows]
    model = HangingPage(topic, minutes, len(places), paged, rows)
    return Rendered("Hanging transactions", "hanging.html", model)

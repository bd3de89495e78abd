"""The page that lists transactional ids, with a search by name and a filter by state."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ....client.admin import TransactionDescription, TransactionListing
from ....client.admin.transactions import Described
from ....client.records import TopicPartition
from ....protocol.errors import KafkaError
from ...area import BadQuestion, Paged, Rendered, Visit
from ...by_broker import joined
from ...searching import has_words
from ...sorting import Column, Sorted

OPEN: Final = "Ongoing"
DECIDED: Final = ("PrepareCommit", "PrepareAbort")
DESCRIBE_S: Final = 4.0
"""Seconds that a page waits for the details of its rows. Coordinators that are loading are asked again meanwhile."""
STATES: Final = ("Empty", OPEN, *DECIDED, "CompleteCommit", "CompleteAbort")


@dataclass(frozen=True, slots=True)
class TransactionRow:
    """A transactional id and its newest transaction as a table row.

    `kind` is the state's colour, see `kind_of`. Unknown values are None.
    """

    id: str
    state: str
    kind: str
    producer_id: int
    epoch: int | None
    open_s: float | None
    timeout_s: float | None
    partitions: int | None
    app_version: int | None
    coordinator: int

    @property
    def is_late(self) -> bool:
        """True if the transaction has been open for longer than its producer's transaction timeout."""
        return self.open_s is not None and self.timeout_s is not None and self.open_s > self.timeout_s


COLUMNS: Final = (
    Column[TransactionListing]("id", "transactional id", lambda listed: listed.transactional_id),
    Column[TransactionListing]("state", "state", lambda listed: listed.state),
    Column[TransactionListing]("open", "open for", is_number=True),
    Column[TransactionListing]("partitions", "partitions", is_number=True),
    Column[TransactionListing]("version", "app version", is_number=True),
    Column[TransactionListing]("producer", "producer id", lambda listed: listed.producer_id, is_number=True),
    Column[TransactionListing]("epoch", "epoch", is_number=True),
    Column[TransactionListing](
        "coordinator", "coordinator", lambda listed: listed.coordinator, is_number=True
    ),
)
"""The columns of the table of transactional ids. Those without a key are known only for the rows that a page shows."""


@dataclass(frozen=True, slots=True)
class TransactionsPage:
    """The data that the template of the list of transactional ids shows.

    `cut` is the newest cut's commit index, see `newest_cut`.
    """

    sorted: Sorted[TransactionListing]
    paged: Paged[TransactionListing]
    rows: Sequence[TransactionRow]
    search: str
    state: str
    states: Sequence[str]
    counts: Sequence[tuple[str, int]]
    total: int
    cut: int | None
    silent: Mapping[int, str]
    """The errors of brokers that listed no transactional ids."""
    undescribed: str
    """The reason why the rows have no details."""


def kind_of(state: str) -> str:
    """Return the colour class for a transaction's state: "news" if open, "bad" if decided without all markers, else
    empty."""
    if state == OPEN:
        return "news"
    return "bad" if state in DECIDED else ""


def matching(found: Sequence[TransactionListing], search: str, state: str) -> list[TransactionListing]:
    """Return the transactional ids that contain all words of the search and are in `state`, or in any state if it is
    empty."""
    return [
        transaction
        for transaction in found
        if (not state or transaction.state == state) and has_words(transaction.transactional_id, search)
    ]


def transaction_row(listed: TransactionListing, described: Described, now_s: float) -> TransactionRow:
    """Return the table row of a transactional id; `described` holds the details of its newest transaction, if known."""
    transaction = described.get(listed.transactional_id)
    if not isinstance(transaction, TransactionDescription):
        state, nothing = listed.state, (None, None, None, None, None)
        return TransactionRow(
            listed.transactional_id, state, kind_of(state), listed.producer_id, *nothing, listed.coordinator
        )
    return TransactionRow(
        transaction.transactional_id,
        transaction.state,
        kind_of(transaction.state),
        transaction.producer_id,
        transaction.producer_epoch,
        open_for_s(transaction, now_s),
        transaction.timeout_ms / 1000,
        len(transaction.partitions),
        None if transaction.app_version < 0 else transaction.app_version,
        transaction.coordinator,
    )


def open_for_s(transaction: TransactionDescription, now_s: float) -> float | None:
    """Return the seconds since an unfinished transaction began; None if the transactional id has no such transaction.

    A transaction that is decided but still waits for markers counts as unfinished.
    """
    if transaction.started_ms < 0 or transaction.state not in (OPEN, *DECIDED):
        return None
    return max(0.0, now_s - transaction.started_ms / 1000)


async def listed_ids(
    visit: Visit, pattern: str | None = None
) -> tuple[list[TransactionListing], dict[int, str]]:
    """Return the transactional ids in order, and by broker id the errors of brokers that listed none.

    `pattern` limits the ids. Raises KafkaError.
    """
    found, silent = joined(await visit.admin.list_transactions_by_broker(pattern=pattern))
    by_name = {(transaction.transactional_id, transaction.producer_id): transaction for transaction in found}
    return [by_name[key] for key in sorted(by_name)], silent


async def described_ids(visit: Visit, names: Sequence[str]) -> tuple[Described, str]:
    """Return the description of the newest transaction of each transactional id.

    If all fail, the second value is the reason, so that the list is shown in any case.
    """
    try:
        async with asyncio.timeout(DESCRIBE_S):
            return await visit.admin.describe_transactions(names), ""
    except KafkaError as error:
        return {}, f"{error.message} ({error.code.name})"
    except TimeoutError:
        return {}, f"there was no answer within {DESCRIBE_S:g} s"


async def newest_cut(visit: Visit) -> int | None:
    """Return the commit index up to which every decided transaction has its markers in all topics.

    None if the cluster does not support cuts, or has none now.
    """
    snapshot = await visit.sampler.snapshot()
    places = [
        TopicPartition(topic.name, index)
        for topic in snapshot.topics
        if not topic.is_internal
        for index in topic.partitions
    ]
    if not places:
        return None
    try:
        cut = await visit.admin.find_cut(places)
    except KafkaError:  # A missing cut must not hide the list.
        return None
    return None if cut.commit_index < 0 else cut.commit_index


async def show(visit: Visit) -> Rendered:
    """Return the page that lists transactional ids.

    Transactions are described only for the rows of this page of the table.
    """
    search, state = visit.text("q"), visit.text("state")
    if state and state not in STATES:
        raise BadQuestion(f"'state' is one of {', '.join(STATES)}, not {state[:40]!r}")
    listed, silent = await listed_ids(visit)
    found = visit.sorted(matching(listed, search, state), COLUMNS, "id")
    paged = visit.paged(found.rows)
    described, undescribed = await described_ids(
        visit, [transaction.transactional_id for transaction in paged.rows]
    )
    rows = [transaction_row(transaction, described, time.time()) for transaction in paged.rows]
    counts = Counter(transaction.state for transaction in listed)
    model = TransactionsPage(
        found,
        paged,
        rows,
        search,
        state,
        STATES,
        [(name, counts[name]) for name in STATES if counts[name]],
        len(listed),
        await newest_cut(visit),
        silent,
        undescribed,
    )
    return Rendered("Transactions", "transactions.html", model)

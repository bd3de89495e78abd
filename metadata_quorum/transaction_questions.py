"""The active leader's answers to brokers about transactions. Each answer takes a few milliseconds at most, and fits
into `ANSWER_BYTES_MAX`, however many transactions there are. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass
from itertools import islice

from ..protocol.cluster.transaction_table import (
    Place,
    TransactionMetadata,
    TransactionTable,
    Writer,
    by_topic,
    places_of,
)
from ..protocol.messages.transaction_questions import (
    AskCut,
    AskTransactionIds,
    AskTransactions,
    CutTold,
    TransactionAnswer,
    TransactionIdsTold,
    TransactionIdTold,
    TransactionQuestion,
    TransactionsTold,
    TransactionTold,
    WriterTold,
)

ANSWER_BYTES_MAX = 256 * 1024
"""Limit for an answer. Only the partitions of a single writer may exceed it."""
LOOKED_AT_MAX = 5_000
"""Number of transactional ids for one page, or of partitions for one description: a few milliseconds' work."""
LISTED_MAX = 1_000
_EASIER_TO_LOOK_AT = 10
"""Number of partition entries that take as long to check as one transaction with its writers."""
_FIXED_BYTES = 128
"""Upper bound for the size of a transaction without its name and writers."""
_WRITER_BYTES = 16
_PLACE_BYTES = 22
"""Size of a partition that is the only one of its topic."""
CHARACTER_BYTES_MAX = 4


def largest_cut(table: TransactionTable, places: Iterable[Place]) -> int:
    """Return the largest cut: the highest commit index up to which every decided transaction has all its markers in
    `places`, or in all partitions if `places` is empty.

    It remains valid: later decisions have larger indexes, and settled partitions do not become outstanding again
    (except where an unclean election has lost markers). A deposed leader that has not noticed returns a smaller index
    at worst, which is an older valid cut.
    """
    wanted = frozenset(places)
    decided = [table.by_id[name] for name in table.decided]
    here = [table.at(place) for place in wanted]
    least = table.next_commit_index
    if wanted and sum(map(len, here)) <= len(decided) * _EASIER_TO_LOOK_AT:
        indexes = (
            transaction.commit_index
            for some in here
            for transaction in some.values()
            if transaction.phase.is_decided
        )
        return min(indexes, default=least) - 1
    for transaction in decided:
        if transaction.commit_index < least and (not wanted or _is_outstanding(transaction, wanted)):
            least = transaction.commit_index
    return least - 1


def _is_outstanding(transaction: TransactionMetadata, places: Set[Place]) -> bool:
    return any(not writer.outstanding.isdisjoint(places) for writer in transaction.writers.values())


@dataclass(slots=True)
class _Listing:
    number: int
    names: list[str]


class TransactionAnswers:
    """The leader's answers to brokers' questions about transactions, with the unfinished listing of each broker."""

    def __init__(self) -> None:
        self._listings: dict[int, _Listing] = {}

    def forget(self, broker_id: int) -> None:
        """Drop the unfinished listing of transactions of a broker whose session has ended."""
        self._listings.pop(broker_id, None)

    def answer(
        self, broker_id: int, question: TransactionQuestion, table: TransactionTable, metadata_offset: int
    ) -> TransactionAnswer:
        """Answer a broker's question about a cut, about some transactions, or for a page of transactional ids. `table`
        is the state at `metadata_offset`."""
        match question:
            case AskCut():
                cut = largest_cut(table, places_of(question.topics))
                return CutTold(question=question.question, commit_index=cut, metadata_offset=metadata_offset)
            case AskTransactions():
                return _described(question, table)
            case AskTransactionIds():
                return self._page(broker_id, question, table)

    def _page(
        self, broker_id: int, question: AskTransactionIds, table: TransactionTable
    ) -> TransactionIdsTold:
        if question.producer_ids:
            return _by_producer(question, table)
        if question.listing == question.question:
            self._listings[broker_id] = _Listing(question.listing, list(table.by_id))
        listing = self._listings.get(broker_id)
        if listing is None or listing.number != question.listing:
            return TransactionIdsTold(question=question.question, began_elsewhere=True)
        page = _Page(question)
        for name in islice(listing.names, page.position, page.position + LOOKED_AT_MAX):
            transaction = table.by_id.get(name)
            if not page.take(transaction, -1 if transaction is None else transaction.producer_id):
                break
        told = page.told(len(listing.names))
        if told.position < 0:
            del self._listings[broker_id]
        return told


def _by_producer(question: AskTransactionIds, table: TransactionTable) -> TransactionIdsTold:
    page = _Page(question)
    for producer_id in islice(question.producer_ids, page.position, page.position + LOOKED_AT_MAX):
        if not page.take(table.by_producer.get(producer_id), producer_id):
            break
    return page.told(len(question.producer_ids))


class _Page:
    """A page of a listing of transactional ids, with the transactions that pass the question's filters, up to
    `ANSWER_BYTES_MAX`."""

    def __init__(self, question: AskTransactionIds) -> None:
        self.position = max(question.position, 0)
        self._question = question.question
        self._phases = frozenset(question.phases)
        self._started_before_ms = question.started_before_ms
        self._transactions: list[TransactionIdTold] = []
        self._room = ANSWER_BYTES_MAX

    def take(self, transaction: TransactionMetadata | None, producer_id: int) -> bool:
        """Add a transaction to the page if it passes the filters, and advance by one position. Return False if the page
        has no more room."""
        if transaction is not None and self._passes(transaction):
            self._room -= _room_for(transaction)
            if self._transactions and (self._room < 0 or len(self._transactions) == LISTED_MAX):
                return False
            self._transactions.append(
                TransactionIdTold(
                    transactional_id=transaction.transactional_id,
                    producer_id=producer_id,
                    phase=transaction.phase,
                )
            )
        self.position += 1
        return True

    def _passes(self, transaction: TransactionMetadata) -> bool:
        return (
            not self._phases or transaction.phase in self._phases
        ) and transaction.started_ms < self._started_before_ms

    def told(self, end: int) -> TransactionIdsTold:
        """Return the page as an answer, with the position from which the next page continues; -1 if this page reaches
        `end`."""
        position = -1 if self.position >= end else self.position
        return TransactionIdsTold(question=self._question, position=position, transactions=self._transactions)


def _room_for(transaction: TransactionMetadata) -> int:
    """Return the largest possible size in bytes of a transaction in an answer, without its writers."""
    return _FIXED_BYTES + CHARACTER_BYTES_MAX * len(transaction.transactional_id)


# ------------------------------------------------------------ descriptions


def _described(question: AskTransactions, table: TransactionTable) -> TransactionsTold:
    told: list[TransactionTold] = []
    room, places = ANSWER_BYTES_MAX, LOOKED_AT_MAX
    answered = 0
    for name in question.transactional_ids[:LISTED_MAX]:
        transaction = table.by_id.get(name)
        if transaction is not None:
            room -= _room_for(transaction)
            if told and (room < 0 or places <= 0):
                break
            known = 0
            if answered == 0 and question.number == transaction.number:
                known = min(question.writers_known, len(transaction.writers))
            description = _told(transaction, known)
            told.append(description)
            for writer in islice(transaction.writers.values(), known, None):
                room -= _WRITER_BYTES + _PLACE_BYTES * len(writer.outstanding)
                places -= 1 + len(writer.outstanding)
                if (description.writers or len(told) > 1) and (room < 0 or places < 0):
                    description.more_writers = True
                    return TransactionsTold(question=question.question, answered=answered, transactions=told)
                description.writers.append(_writer(writer))
        answered += 1
    return TransactionsTold(question=question.question, answered=answered, transactions=told)


def _told(transaction: TransactionMetadata, first_writer: int) -> TransactionTold:
    return TransactionTold(
        transactional_id=transaction.transactional_id,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        phase=transaction.phase,
        timeout_ms=transaction.timeout_ms,
        started_ms=transaction.started_ms,
        number=transaction.number,
        app_version=transaction.app_version,
        commit_index=transaction.commit_index,
        first_writer=first_writer,
    )


def _writer(writer: Writer) -> WriterTold:
    return WriterTold(
        producer_id=writer.producer_id,
        producer_epoch=writer.producer_epoch,
        topics=by_topic(writer.outstanding),
    )

"""What the active leader tells brokers about transactions. Each answer takes a few milliseconds at most, and fits into
`ANSWER_BYTES_MAX`, however many transactions there are. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass
from itertools import islice

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
from ..protocol.transaction_table import Place, Transaction, TransactionTable, Writer, by_topic, places_of

ANSWER_BYTES_MAX = 256 * 1024
"""Only one writer's partitions that take more are told in one piece."""
LOOKED_AT_MAX = 5_000
"""Transactional ids for one page, or partitions for one description: a few milliseconds' work."""
LISTED_MAX = 1_000
_EASIER_TO_LOOK_AT = 10
"""So many entries of partitions take the time of one transaction with its writers."""
_FIXED_BYTES = 128
"""More than a transaction takes beside its name and writers."""
_WRITER_BYTES = 16
_PLACE_BYTES = 22
"""A partition that is the only one of its topic."""
_CHARACTER_BYTES_MAX = 4


def largest_cut(table: TransactionTable, places: Iterable[Place]) -> int:
    """The largest commit index up to which nothing decided is outstanding in `places`; in none at all without any.

    It holds for ever: what is decided later has a larger index, and what was settled is not outstanding again (but
    where an unclean election has lost markers). So a leader that was deposed and has not noticed tells a smaller one
    at worst, which is a cut as well, only an older one.
    """
    wanted = frozenset(places)
    decided = [table.transactions[name] for name in table.decided]
    here = [table.at(place) for place in wanted]
    least = table.next_commit_index
    if wanted and sum(map(len, here)) <= len(decided) * _EASIER_TO_LOOK_AT:
        indexes = (one.commit_index for some in here for one in some.values() if one.phase.is_decided)
        return min(indexes, default=least) - 1
    for one in decided:
        if one.commit_index < least and (not wanted or _is_outstanding(one, wanted)):
            least = one.commit_index
    return least - 1


def _is_outstanding(transaction: Transaction, places: Set[Place]) -> bool:
    return any(not writer.outstanding.isdisjoint(places) for writer in transaction.writers.values())


@dataclass(slots=True)
class _Listing:
    number: int
    names: list[str]


class TransactionAnswers:
    """Answers of this node, and the listing that each broker is in the middle of."""

    def __init__(self) -> None:
        self._listings: dict[int, _Listing] = {}

    def forget(self, broker_id: int) -> None:
        """The broker's session has ended."""
        self._listings.pop(broker_id, None)

    def answer(
        self, broker_id: int, question: TransactionQuestion, table: TransactionTable
    ) -> TransactionAnswer:
        """What the table says now."""
        match question:
            case AskCut():
                cut = largest_cut(table, places_of(question.topics))
                return CutTold(question=question.question, commit_index=cut)
            case AskTransactions():
                return _described(question, table)
            case AskTransactionIds():
                return self._page(broker_id, question, table)

    def _page(
        self, broker_id: int, question: AskTransactionIds, table: TransactionTable
    ) -> TransactionIdsTold:
        if question.listing == question.question:
            self._listings[broker_id] = _Listing(question.listing, list(table.transactions))
        listing = self._listings.get(broker_id)
        if listing is None or listing.number != question.listing:
            return TransactionIdsTold(question=question.question, began_elsewhere=True)
        passes = _filter(question)
        page = _Page()
        position = max(question.position, 0)
        for name in islice(listing.names, position, position + LOOKED_AT_MAX):
            transaction = table.transactions.get(name)
            if transaction is not None and passes(transaction) and not page.take(transaction):
                break
            position += 1
        if position >= len(listing.names):
            del self._listings[broker_id]
            position = -1
        return TransactionIdsTold(
            question=question.question, position=position, transactions=page.transactions
        )


class _Page:
    """What is listed, as far as there is room."""

    def __init__(self) -> None:
        self.transactions: list[TransactionIdTold] = []
        self._room = ANSWER_BYTES_MAX

    def take(self, transaction: Transaction) -> bool:
        """False if it is full."""
        self._room -= _room_for(transaction)
        if self.transactions and (self._room < 0 or len(self.transactions) == LISTED_MAX):
            return False
        self.transactions.append(
            TransactionIdTold(
                transactional_id=transaction.transactional_id,
                producer_id=transaction.producer_id,
                phase=transaction.phase,
            )
        )
        return True


def _room_for(transaction: Transaction) -> int:
    """Bytes that it takes at most, without its writers."""
    return _FIXED_BYTES + _CHARACTER_BYTES_MAX * len(transaction.transactional_id)


def _filter(question: AskTransactionIds) -> Callable[[Transaction], bool]:
    phases, producer_ids = frozenset(question.phases), frozenset(question.producer_ids)

    def passes(transaction: Transaction) -> bool:
        return (
            (not phases or transaction.phase in phases)
            and (not producer_ids or transaction.producer_id in producer_ids)
            and transaction.started_ms < question.started_before_ms
        )

    return passes


# ------------------------------------------------------------ descriptions


def _described(question: AskTransactions, table: TransactionTable) -> TransactionsTold:
    told: list[TransactionTold] = []
    room, places = ANSWER_BYTES_MAX, LOOKED_AT_MAX
    answered = 0
    for name in question.transactional_ids[:LISTED_MAX]:
        transaction = table.transactions.get(name)
        if transaction is not None:
            room -= _room_for(transaction)
            if told and (room < 0 or places <= 0):
                break
            known = 0
            if answered == 0 and question.number == transaction.number:
                known = min(question.writers_known, len(transaction.writers))
            one = _told(transaction, known)
            told.append(one)
            for writer in islice(transaction.writers.values(), known, None):
                room -= _WRITER_BYTES + _PLACE_BYTES * len(writer.outstanding)
                places -= 1 + len(writer.outstanding)
                if (one.writers or len(told) > 1) and (room < 0 or places < 0):
                    one.more_writers = True
                    return TransactionsTold(question=question.question, answered=answered, transactions=told)
                one.writers.append(_writer(writer))
        answered += 1
    return TransactionsTold(question=question.question, answered=answered, transactions=told)


def _told(transaction: Transaction, first_writer: int) -> TransactionTold:
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

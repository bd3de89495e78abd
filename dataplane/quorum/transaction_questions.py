"""Questions of a broker to the quorum's leader about transactions, as asynchronous methods.

A large result comes in many answers, none of which keeps the leader busy for long; see
`protocol.messages.transaction_questions`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from itertools import islice
from typing import NamedTuple, TypeVar

from ...protocol.cluster.transaction_table import Phase, Place, by_topic
from ...protocol.messages.transaction_questions import (
    FOREVER_MS,
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
)
from .listings import all_pages

Ask = Callable[[Callable[[int], TransactionQuestion], float], Awaitable[TransactionAnswer | None]]
"""A function that asks the leader a question. Its arguments are a function that makes the question from the question's
number, and the seconds to wait. It returns None if no answer came in time."""
_AnswerT = TypeVar("_AnswerT", CutTold, TransactionsTold, TransactionIdsTold)
_PLACES_PER_QUESTION = 10_000
_IDS_PER_QUESTION = 1_000
_CHARACTERS_PER_QUESTION = 64 * 1024


class TransactionCut(NamedTuple):
    """A cut: a commit index at which readers of some partitions see every transaction as a whole or not at all."""

    commit_index: int
    """The largest commit index up to which every decided transaction has all its markers in the partitions; -1 if no
    transaction was ever decided."""
    metadata_offset: int
    """A metadata offset: a broker whose image has reached it, and that leads one of the partitions, has all these
    markers."""

    def joined(self, other: TransactionCut) -> TransactionCut:
        """Return the cut for the partitions of both cuts: the smaller commit index, and the larger metadata offset."""
        return TransactionCut(
            min(self.commit_index, other.commit_index), max(self.metadata_offset, other.metadata_offset)
        )


class TransactionQuestions:
    """A client of the quorum's leader that asks about transactions. The methods return None if no leader answered in
    time."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._one_listing = asyncio.Lock()

    async def cut(self, places: Collection[Place], timeout_s: float) -> TransactionCut | None:
        """Return the newest cut of these partitions, or of all if none are named: the largest commit index up to which
        they have all markers.

        None if no leader answered in time.
        """
        clock = _Clock(timeout_s)
        wanted = iter(sorted(places))
        some = list(islice(wanted, _PLACES_PER_QUESTION))
        least: TransactionCut | None = None
        while True:
            answer = await self._answer(_cutting(some), CutTold, clock)
            if answer is None:
                return None
            # A cut of some partitions stays valid, so the least cut is valid for all partitions.
            cut = TransactionCut(answer.commit_index, answer.metadata_offset)
            least = cut if least is None else least.joined(cut)
            some = list(islice(wanted, _PLACES_PER_QUESTION))
            if not some:
                return least

    async def describe(self, names: Iterable[str], timeout_s: float) -> dict[str, TransactionTold] | None:
        """Return the newest transaction of each transactional id, with all its writers, by id. Unknown ids are left
        out. None if no leader answered in time."""
        clock = _Clock(timeout_s)
        waiting = list(dict.fromkeys(names))
        found: dict[str, TransactionTold] = {}
        position = 0
        part: TransactionTold | None = None
        while position < len(waiting):
            ask = _about(waiting, position, part)
            answer = await self._answer(ask, TransactionsTold, clock)
            if answer is None:
                return None
            for transaction in answer.transactions:
                if part is not None and transaction.first_writer:
                    transaction.writers = part.writers + transaction.writers
                    transaction.first_writer = 0
                found[transaction.transactional_id] = part = transaction
            part = part if part is not None and part.more_writers else None
            position += answer.answered
        return found

    async def ids(
        self,
        timeout_s: float,
        *,
        phases: Collection[Phase] = (),
        producer_ids: Collection[int] = (),
        started_before_ms: int = FOREVER_MS,
    ) -> list[TransactionIdTold] | None:
        """Return the transactional ids that pass the filters, in no order.

        With `producer_ids`, each of them selects the transactional id whose owner or other writer has this producer id;
        an id that several select is returned for each. One listing runs at a time, and other calls wait.
        """
        clock = _Clock(timeout_s)
        wanted = sorted(producer_ids)
        found: list[TransactionIdTold] = []
        try:
            async with asyncio.timeout(timeout_s), self._one_listing:
                for first in range(0, max(len(wanted), 1), _IDS_PER_QUESTION):
                    filters = AskTransactionIds(
                        phases=sorted(phases),
                        producer_ids=wanted[first : first + _IDS_PER_QUESTION],
                        started_before_ms=started_before_ms,
                    )
                    part = await self._list(filters, clock)
                    if part is None:
                        return None
                    found += part
        except TimeoutError:
            return None
        return found

    async def _list(self, filters: AskTransactionIds, clock: _Clock) -> list[TransactionIdTold] | None:
        pages = await all_pages(
            lambda listing, position: self._answer(
                _page(filters, listing, position), TransactionIdsTold, clock
            )
        )
        return None if pages is None else [transaction for page in pages for transaction in page.transactions]

    async def _answer(
        self, question: Callable[[int], TransactionQuestion], expected: type[_AnswerT], clock: _Clock
    ) -> _AnswerT | None:
        answer = await self._ask(question, clock.left_s)
        if answer is not None and not isinstance(answer, expected):
            raise TypeError(f"asked for {expected.__name__}, got {type(answer).__name__}")
        return answer


class _Clock:
    def __init__(self, timeout_s: float) -> None:
        self._now = asyncio.get_running_loop().time
        self._end = self._now() + timeout_s

    @property
    def left_s(self) -> float:
        return max(0.0, self._end - self._now())


def _cutting(places: Iterable[Place]) -> Callable[[int], AskCut]:
    topics = by_topic(places)
    return lambda number: AskCut(question=number, topics=topics)


def _about(
    waiting: Sequence[str], position: int, part: TransactionTold | None
) -> Callable[[int], AskTransactions]:
    names: list[str] = []
    room = _CHARACTERS_PER_QUESTION
    for name in islice(waiting, position, position + _IDS_PER_QUESTION):
        room -= len(name)
        if names and room < 0:
            break
        names.append(name)
    return lambda number: AskTransactions(
        question=number,
        transactional_ids=names,
        number=-1 if part is None else part.number,
        writers_known=0 if part is None else part.first_writer + len(part.writers),
    )


def _page(filters: AskTransactionIds, listing: int, position: int) -> Callable[[int], AskTransactionIds]:
    return lambda number: AskTransactionIds(
        question=number,
        listing=listing or number,
        position=position,
        phases=filters.phases,
        producer_ids=filters.producer_ids,
        started_before_ms=filters.started_before_ms,
    )

"""What a broker asks the quorum's leader about transactions, as calls.

What is large comes in many answers, none of which keeps the leader busy for long; see
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
"""Asks what is made of the question's number; None if there was no answer within so many seconds."""
_AnswerT = TypeVar("_AnswerT", CutTold, TransactionsTold, TransactionIdsTold)
_PLACES_PER_QUESTION = 10_000
_IDS_PER_QUESTION = 1_000
_CHARACTERS_PER_QUESTION = 64 * 1024


class TransactionCut(NamedTuple):
    """Where partitions can be cut so that no transaction is torn."""

    commit_index: int
    """The largest one such that nothing decided up to it lacks a marker; -1 if nothing was ever decided."""
    metadata_offset: int
    """A broker that leads one of them by an image that is at least there has all these markers."""

    def joined(self, other: TransactionCut) -> TransactionCut:
        """Of the partitions of both."""
        return TransactionCut(
            min(self.commit_index, other.commit_index), max(self.metadata_offset, other.metadata_offset)
        )


class TransactionQuestions:
    """Each call is answered by an active leader; None: none has answered in time."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._one_listing = asyncio.Lock()

    async def cut(self, places: Collection[Place], timeout_s: float) -> TransactionCut | None:
        """The newest cut of these partitions, of all there are if none are named."""
        clock = _Clock(timeout_s)
        wanted = iter(sorted(places))
        some = list(islice(wanted, _PLACES_PER_QUESTION))
        least: TransactionCut | None = None
        while True:
            told = await self._answer(_cutting(some), CutTold, clock)
            if told is None:
                return None
            # What is true of these once stays true, so the least one is true of all of them.
            cut = TransactionCut(told.commit_index, told.metadata_offset)
            least = cut if least is None else least.joined(cut)
            some = list(islice(wanted, _PLACES_PER_QUESTION))
            if not some:
                return least

    async def describe(self, names: Iterable[str], timeout_s: float) -> dict[str, TransactionTold] | None:
        """Their newest transactions, with all writers; without those that are not known."""
        clock = _Clock(timeout_s)
        waiting = list(dict.fromkeys(names))
        found: dict[str, TransactionTold] = {}
        position = 0
        part: TransactionTold | None = None
        while position < len(waiting):
            ask = _about(waiting, position, part)
            told = await self._answer(ask, TransactionsTold, clock)
            if told is None:
                return None
            for one in told.transactions:
                if part is not None and one.first_writer:
                    one.writers = part.writers + one.writers
                    one.first_writer = 0
                found[one.transactional_id] = part = one
            part = part if part is not None and part.more_writers else None
            position += told.answered
        return found

    async def ids(
        self,
        timeout_s: float,
        *,
        phases: Collection[Phase] = (),
        producer_ids: Collection[int] = (),
        started_before_ms: int = FOREVER_MS,
    ) -> list[TransactionIdTold] | None:
        """The transactional ids that pass, in no order; by `producer_ids`, that of each whose owner's or other writer's
        it is, once for each. One listing at a time: others wait.
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
        return None if pages is None else [one for page in pages for one in page.transactions]

    async def _answer(
        self, question: Callable[[int], TransactionQuestion], expected: type[_AnswerT], clock: _Clock
    ) -> _AnswerT | None:
        told = await self._ask(question, clock.left_s)
        if told is not None and not isinstance(told, expected):
            raise TypeError(f"asked for {expected.__name__}, told {type(told).__name__}")
        return told


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

"""Promises about what transactions have read: a cause comes before its effect."""

from __future__ import annotations

from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from math import inf

from ..operations import Poll
from ..transactions import Transaction
from .base import Invariant
from .facts import Facts, HighestBefore, ended, polled
from .whole_transactions import commit_indexes

Causes = dict[str, dict[str, Poll]]
"""By the name of each transaction those whose records it read, each with the first poll that shows it."""


class CircularReads(Invariant):
    """What a committed transaction has read was committed before it, and so was all that those had read which wrote it:
    no transaction is among its own causes (Adya's G1c, of what was written and read), and none is answered before one
    of its causes was asked to be committed. So what clients conclude from what they read has an order.

    It holds whatever is lost: a loss takes records, but shows nobody as committed what is not. When something was read
    does not matter, only in which transaction, so it stands beside `UncommittedRead`, which goes by the clock.
    """

    scenarios = (11,)

    def violations(self, facts: Facts) -> Iterator[str]:
        causes = _causes(facts)
        try:
            order = list(TopologicalSorter(causes).static_order())
        except CycleError as error:
            yield "; ".join(
                f"{reader} has read what {writer} wrote: {polled(causes[reader][writer])}"
                for writer, reader in pairwise(error.args[1])
            )
            return
        yield from self._asked_too_late(facts, causes, order)

    def _asked_too_late(self, facts: Facts, causes: Causes, order: list[str]) -> Iterator[str]:
        """`order`: causes first."""
        # Of each transaction and all that it goes back to the one which was asked for last.
        last: dict[str, Transaction] = {}
        for name in order:
            own = last[name] = facts.transactions[name]
            for writer, poll in causes.get(name, {}).items():
                cause = last[writer]
                if own.is_committed and own.completed_s is not None and own.completed_s < _asked_s(cause):
                    yield f"{ended(own)}; {polled(poll)}, of {writer}, which goes back to {ended(cause)}"
                last[name] = max(last[name], cause, key=_asked_s)


class EffectBeforeCause(Invariant):
    """Who reads whole transactions, or the cluster as it was after one of them, sees no effect without its causes:
    commits were decided in an order in which each comes behind all whose records it had read, and behind all that were
    answered before it was asked for. Judged on the logs. (Where records were lost there is no order to be found.)"""

    scenarios = (11, 34)

    def violations(self, facts: Facts) -> Iterator[str]:
        committed = commit_indexes(facts)
        decided = {facts.transactions[name].whole: index for name, index in committed.items()}
        for reader, read in _causes(facts).items():
            for writer, poll in read.items():
                if reader in decided and decided[reader] <= decided.get(writer, -1):
                    yield (
                        f"{reader} has commit index {decided[reader]}, and {decided[writer]} has {writer}, whose "
                        f"records it had read: {polled(poll)}"
                    )
        yield from self._behind_what_was_answered(facts, committed)

    def _behind_what_was_answered(self, facts: Facts, committed: dict[str, int]) -> Iterator[str]:
        answered = [
            (transaction.completed_s, float(index))
            for name, index in committed.items()
            if (transaction := facts.transactions[name]).is_committed and transaction.completed_s is not None
        ]
        highest = HighestBefore(answered)
        for name, index in committed.items():
            transaction = facts.transactions[name]
            before = highest.at(_asked_s(transaction))
            if index <= before:
                yield (
                    f"{ended(transaction)} has commit index {index}; one with {before:g} was answered before that"
                )


def _causes(facts: Facts) -> Causes:
    """Of transactions that are committed, as far as anybody knows."""
    found: Causes = {}
    for poll in facts.history.polls:
        if poll.transaction is None or not poll.committed:
            continue
        reader, writer = facts.transactions[poll.transaction], facts.read_in(poll)
        if writer is not None and reader.is_committed is not False and writer.is_committed is not False:
            found.setdefault(reader.whole, {}).setdefault(writer.whole, poll)
    return found


def _asked_s(transaction: Transaction) -> float:
    return -inf if transaction.asked_s is None else transaction.asked_s

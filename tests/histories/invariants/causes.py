"""Promises about reads in transactions: a cause comes before its effect."""

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
"""Transactions whose records a transaction read, each with the first poll that shows the read; by the reader's name."""


class CircularReads(Invariant):
    """A committed transaction has read only records of transactions that were committed before it, and their causes
    were committed before, too.

    No transaction is among its own causes (Adya's G1c, of writes and reads). No transaction is answered before the
    commit of one of its causes was requested. So the conclusions that clients draw from their reads have an order. This
    holds despite losses: a loss takes records, but never shows an uncommitted record as committed. The time of a read
    is irrelevant here; only its transaction counts. `UncommittedRead` is the separate invariant that goes by the clock.
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
        """Yield the transactions that were answered before the commit of a cause was requested.

        `order`: causes first.
        """
        # Latest requested commit among a transaction and all its direct and indirect causes.
        last: dict[str, Transaction] = {}
        for name in order:
            own = last[name] = facts.transactions[name]
            for writer, poll in causes.get(name, {}).items():
                cause = last[writer]
                if own.is_committed and own.completed_s is not None and own.completed_s < _asked_s(cause):
                    yield f"{ended(own)}; {polled(poll)}, of {writer}, which goes back to {ended(cause)}"
                last[name] = max(last[name], cause, key=_asked_s)


class EffectBeforeCause(Invariant):
    """A reader of whole transactions, or of the cluster's state after a transaction, sees no effect without its causes.

    Commits are decided in an order in which each commit follows all transactions whose records it had read, and all
    transactions that were answered before it was requested. Judged on the logs. (Where records were lost no such order
    exists.)
    """

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
    """Return the causes of each transaction that is or may be committed."""
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

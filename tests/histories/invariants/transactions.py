"""Promises about transactions: atomic, equal for all readers, and closed to replaced producers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from ..operations import CommittedRead, Dump, Outcome, Poll, Send, StableEnd
from ..transactions import Marker, Transaction
from .base import Invariant
from .facts import Facts, Place, ended, named, polled, short, told


def _place(operation: Send | Poll | CommittedRead) -> Place:
    return operation.topic, operation.partition


class TornTransaction(Invariant):
    """Read-committed consumers see a committed transaction whole, in every partition that it wrote to, and see no
    record of an aborted transaction.

    Whole means all acknowledged records and, once the commit was answered, every record that its producer had sent
    before without an error. If the producer did not learn the outcome, the transaction still has a single outcome, and
    all readers see the same. (Records or markers that an unclean election took are exempt.)
    """

    scenarios = (8, 10, 33, 34)

    def violations(self, facts: Facts) -> Iterator[str]:
        if not facts.history.committed_reads:
            return
        is_there = facts.stands_committed
        seen = self._seen(facts)
        for name, sends in facts.sent_in.items():
            transaction = facts.transactions[name]
            there = [send for send in sends if is_there(send)]
            missing = [
                send
                for send in sends
                if _belongs(send, transaction)
                and facts.must_stand_committed(send)
                and _place(send) in facts.committed_final
                and not is_there(send)
            ]
            if transaction.is_committed is False:
                if there:
                    yield f"{ended(transaction)}; readers of what is committed find {told(there[0])}"
            elif missing and (transaction.is_committed or there or name in seen):
                witness = (
                    told(there[0]) if there else polled(seen[name]) if name in seen else "the commit was told"
                )
                yield f"{ended(transaction)}; {told(missing[0])} is not to be found, but {witness}"

    def _seen(self, facts: Facts) -> dict[str, Poll]:
        """Return the transactions of which a read-committed consumer has read a record, by name."""
        found: dict[str, Poll] = {}
        for poll in facts.history.polls:
            transaction = facts.read_in(poll) if poll.committed else None
            if transaction is not None:
                found.setdefault(transaction.name, poll)
        return found


def _belongs(send: Send, transaction: Transaction) -> bool:
    """Return whether the record must exist if its transaction is committed."""
    if send.outcome is Outcome.OK:
        return True
    belongs = (
        transaction.is_committed and transaction.asked_s is not None and send.invoked_s < transaction.asked_s
    )
    return bool(belongs) and send.completed_s is None and send.producer == transaction.producer


class UncommittedRead(Invariant):
    """A read-committed consumer gets no record of a transaction before its producer requested the commit.

    It never gets a record of an aborted transaction, nor of a transaction without a commit request, which timed out or
    whose producer was replaced.
    """

    scenarios = (8, 9, 12, 32)

    def violations(self, facts: Facts) -> Iterator[str]:
        if not facts.transactions:
            return
        for poll in facts.history.polls:
            transaction = facts.read_in(poll) if poll.committed else None
            if transaction is None:
                continue
            if transaction.is_committed is False:
                yield f"{polled(poll)}, of {ended(transaction)}"
            elif transaction.asked_s is None or poll.at_s < transaction.asked_s:
                yield f"{polled(poll)}, before the commit of {ended(transaction)}"


class CommitNotVisible(Invariant):
    """A consumer that starts after a transaction's end was answered reads past it.

    The last stable offset of every partition is beyond the whole transaction, unless an earlier transaction is still
    open there. (A partition without a leader at that time follows once it has a leader.)
    """

    scenarios = (9, 12)

    def violations(self, facts: Facts) -> Iterator[str]:
        by_place: dict[Place, list[tuple[Send, Transaction]]] = {}
        for name, sends in facts.sent_in.items():
            transaction = facts.transactions[name]
            if transaction.outcome is Outcome.OK and transaction.asked_s is not None:
                for send in sends:
                    if send.outcome is Outcome.OK and send.offset is not None:
                        by_place.setdefault(_place(send), []).append((send, transaction))
        for end in facts.history.stable_ends:
            place = (end.topic, end.partition)
            for send, transaction in by_place.get(place, ()):
                assert send.offset is not None
                assert transaction.completed_s is not None
                if (
                    transaction.completed_s <= end.asked_s
                    and end.offset <= send.offset
                    and not self._had_no_leader(facts, place, transaction)
                    and not self._another_is_open(facts, end)
                    and not facts.losses.excuse(place, send.offset, send.invoked_s)
                ):
                    yield f"{end}; {ended(transaction)}; {told(send)}"

    def _had_no_leader(self, facts: Facts, place: Place, transaction: Transaction) -> bool:
        """Return whether the partition had no leader when the end was answered; its marker follows later then."""
        assert transaction.asked_s is not None
        assert transaction.completed_s is not None
        return any(
            (span.topic, span.partition) == place
            and span.from_s <= transaction.completed_s
            and (span.until_s is None or span.until_s >= transaction.asked_s)
            for span in facts.history.leaderless
        )

    def _another_is_open(self, facts: Facts, end: StableEnd) -> bool:
        """Return whether another transaction may begin at or before the last stable offset.

        It may begin before that offset if the offset may be the log start after a deletion. The log then starts at the
        end of the deleted records, or at an earlier segment if power failed.
        """
        place = (end.topic, end.partition)
        is_start = any(
            (deletion.topic, deletion.partition) == place and deletion.before_offset >= end.offset
            for deletion in facts.history.deleted
        )
        for send in facts.sent_to.get(place, ()):
            if send.transaction is None or send.outcome is Outcome.FAIL:
                continue
            other = facts.transactions[send.transaction]
            is_over = other.outcome is Outcome.OK and not self._had_no_leader(facts, place, other)
            known_s = other.completed_s if is_over else None
            is_open = send.invoked_s <= end.at_s and (known_s is None or known_s > end.asked_s)
            if is_open and (send.offset in (None, end.offset) or (is_start and send.offset < end.offset)):
                return True
        return False


class HangingTransaction(Invariant):
    """Read-committed consumers reach the end of every partition after all faults and transaction timeouts.

    No transaction stays open, even if a process was killed, replaced or delayed during it.
    """

    scenarios = (12, 32, 33)

    def violations(self, facts: Facts) -> Iterator[str]:
        for read in facts.history.committed_reads:
            whole = facts.final.get(_place(read))
            if whole is None or whole.end is None or read.end is None:
                continue
            if read.end < whole.end:
                yield (
                    f"{named(_place(read))} is committed up to offset {whole.end}, and readers of what is committed "
                    f"get to {read.end}"
                )
            elif read.reached is not None and read.reached < read.end:
                yield f"{named(_place(read))} was read up to {read.reached}; it is stable up to {read.end}"


class ReplacedProducerWrites(Invariant):
    """Once a new producer has a transactional id, later sends of the previous producer are not written, and its later
    commits are not done.
    """

    scenarios = (30, 31)

    def violations(self, facts: Facts) -> Iterator[str]:
        for name, transaction in facts.transactions.items():
            replaced_s = facts.replaced_s(transaction)
            if replaced_s is None:
                continue
            for send in facts.sent_in.get(name, ()):
                written = send.outcome is Outcome.OK or facts.was_read(send)
                if send.invoked_s > replaced_s and written:
                    yield f"{told(send)}; its producer was replaced at {replaced_s:.6f}"
            late = transaction.asked_s is not None and transaction.asked_s > replaced_s
            if late and transaction.commits and transaction.outcome is Outcome.OK:
                yield f"{ended(transaction)}; its producer was replaced at {replaced_s:.6f}"


class WrittenAfterTheEnd(Invariant):
    """A record that a producer sends in a transaction after it learned of the transaction's end or timeout is not
    written. The record would hang, or become part of the next transaction.
    """

    scenarios = (32,)

    def violations(self, facts: Facts) -> Iterator[str]:
        for name, sends in facts.sent_in.items():
            transaction = facts.transactions[name]
            over_s = transaction.completed_s if transaction.outcome is Outcome.OK else None
            for send in sends:
                if over_s is None or send.invoked_s <= over_s:
                    continue
                if send.outcome is Outcome.OK or facts.was_read(send):
                    yield f"{told(send)}; {ended(transaction)}"


class MarkersContradict(Invariant):
    """A transaction has one outcome: its markers agree in all partitions, one for each producer, and agree with the
    producer's answer.

    In every partition the markers stand in the order in which transactions were decided, so that the cluster can be
    read as of any transaction. Judged on the logs, below their high watermarks. (A compacted topic eventually drops
    markers of transactions without remaining records.)
    """

    scenarios = (33, 34)

    def violations(self, facts: Facts) -> Iterator[str]:
        logs: dict[Place, Dump] = {}
        for dump in facts.history.dumps:
            place = (dump.topic, dump.partition)
            if place not in logs or dump.high_watermark > logs[place].high_watermark:
                logs[place] = dump
        outcomes: dict[tuple[int, int], tuple[bool, str]] = {}
        for place, dump in logs.items():
            markers = [marker for marker in dump.markers if marker.offset < dump.high_watermark]
            yield from self._one_by_one(place, markers, judged=not facts.losses.touch(place))
            for marker in markers:
                if marker.commit_index < 0:
                    continue
                shown = f"{marker} of {named(place)}"
                commits, other = outcomes.setdefault(
                    (marker.commit_index, marker.producer_id), (marker.commits, shown)
                )
                if commits != marker.commits:
                    yield f"{shown} and {other} are of one transaction"
            if not facts.losses.touch(place):
                yield from self._as_told(facts, place, dump.log_start, markers)

    def _one_by_one(self, place: Place, markers: list[Marker], *, judged: bool) -> Iterator[str]:
        decided = [marker for marker in markers if marker.commit_index >= 0]
        for before, after in pairwise(decided):
            writers_of_one = before.commit_index == after.commit_index
            if before.commit_index > after.commit_index or (
                writers_of_one and before.producer_id == after.producer_id
            ):
                yield f"{after} of {named(place)} stands behind {before}"
        if judged and len(decided) < len(markers):
            undecided = next(marker for marker in markers if marker.commit_index < 0)
            yield f"{undecided} of {named(place)} was nobody's decision, and no records were lost there"

    def _as_told(self, facts: Facts, place: Place, log_start: int, markers: list[Marker]) -> Iterator[str]:
        by_producer: dict[int, list[Marker]] = {}
        for marker in markers:
            by_producer.setdefault(marker.producer_id, []).append(marker)
        for name, sends in facts.sent_in.items():
            transaction = facts.transactions[name]
            for send in sends:
                offset = send.offset if _place(send) == place and send.outcome is Outcome.OK else None
                if offset is None or offset < log_start or send.key is not None:
                    continue
                known = by_producer.get(transaction.producer_id, ())
                end = next((marker for marker in known if marker.offset > offset), None)
                if end is None:
                    yield f"{told(send)}; there is no marker behind it, and {ended(transaction)}"
                elif transaction.is_committed not in (None, end.commits):
                    yield f"{told(send)}; it is followed by {end}, and {ended(transaction)}"
                break


class CommittedRetraction(Invariant):
    """A record that was read as committed stays committed for all later readers."""

    scenarios = (8, 12, 34)

    def violations(self, facts: Facts) -> Iterator[str]:
        starts = {_place(read): read.log_start for read in facts.history.committed_reads}
        for poll in facts.history.polls:
            place = _place(poll)
            if not poll.committed or poll.offset < starts.get(place, poll.offset + 1):
                continue
            found = facts.committed_final[place].get(poll.offset, b"nothing")
            if found == b"nothing" and facts.was_taken(poll):
                continue
            if found != poll.value and not self._is_excused(facts, poll):
                yield f"{polled(poll)}; in the end {short(found)} is there"

    def _is_excused(self, facts: Facts, poll: Poll) -> bool:
        place = _place(poll)
        return facts.losses.excuse(place, poll.offset, poll.at_s) or any(
            facts.may_have_lost_its_commit(send) for send in facts.sent.get(place, {}).get(poll.value, ())
        )

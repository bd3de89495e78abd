"""Facts about a history that several invariants need, computed once."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from functools import cached_property
from itertools import accumulate
from math import inf

from ..operations import (
    ALL_IN_SYNC,
    Commit,
    CommittedRead,
    Fetched,
    FinalRead,
    History,
    Lossy,
    Outcome,
    Poll,
    Position,
    ProducerIdentity,
    Send,
    begun_s,
)
from ..transactions import Transaction

Place = tuple[str, int]
"""Topic and partition."""
SHOWN_BYTES = 48


def named(place: Place) -> str:
    """Return the name of a partition, like `orders-0`."""
    return f"{place[0]}-{place[1]}"


def short(value: bytes) -> str:
    """Return a value in the form that messages show."""
    return repr(value) if len(value) <= SHOWN_BYTES else f"{value[:SHOWN_BYTES]!r}..."


def told(send: Send) -> str:
    """Return a send in the form that messages show."""
    end = "never" if send.completed_s is None else f"{send.completed_s:.6f}"
    return (
        f"{send.producer} sent {short(send.value)} as its number {send.sequence_number} to "
        f"{send.topic}-{send.partition}, acks={send.acks}, {send.invoked_s:.6f} to {end}: {send.outcome.value}"
        f"{f' at offset {send.offset}' if send.offset is not None else ''}"
        f"{f' with {send.error}' if send.error else ''}"
    )


def polled(poll: Poll) -> str:
    """Return a poll in the form that messages show."""
    return (
        f"{poll.session} got {short(poll.value)} at {poll.topic}-{poll.partition} offset {poll.offset}, leader "
        f"epoch {poll.leader_epoch}, at {poll.at_s:.6f}"
    )


def ended(transaction: Transaction) -> str:
    """Return a transaction in the form that messages show."""
    asked = "never" if transaction.asked_s is None else f"{transaction.asked_s:.6f}"
    end = "never" if transaction.completed_s is None else f"{transaction.completed_s:.6f}"
    return (
        f"{transaction.name} of {transaction.transactional_id}, producer {transaction.producer_id} epoch "
        f"{transaction.producer_epoch}, asked to {'commit' if transaction.commits else 'abort'} {asked} to {end}: "
        f"{transaction.outcome.value}{f' with {transaction.error}' if transaction.error else ''}"
    )


class Losses:
    """The declared losses, and the sends and reads that they may have taken."""

    def __init__(self, declared: list[Lossy]) -> None:
        self._declared = declared
        self._by_place: dict[Place, list[Lossy]] = {}

    def touch(self, place: Place) -> bool:
        """Return whether any declared loss affects the partition."""
        return bool(self._declared and self._of(place))

    def excuse(self, place: Place, offset: int | None, at_s: float) -> bool:
        """Return whether a record of that time may be gone or replaced; `offset` is None if unknown."""
        if not self._declared:
            return False
        return any(
            (offset is None or offset >= loss.from_offset) and (loss.until_s is None or at_s <= loss.until_s)
            for loss in self._of(place)
        )

    def undecided(self, place: Place, producer_id: int, offset: int | None, at_s: float) -> bool:
        """Return whether a loss may have taken the marker of the transaction in which this producer
        wrote until then.
        """
        return any(
            number == producer_id and (offset is None or offset >= first) and at_s <= loss.at_s
            for loss in self._of(place)
            for number, first in loss.undecided
        )

    def during(self, place: Place, send: Send) -> bool:
        """Return whether a loss began while the outcome of a send was unknown."""
        until_s = float("inf") if send.completed_s is None else send.completed_s
        return any(send.invoked_s <= loss.at_s <= until_s for loss in self._of(place))

    def over_s(self, place: Place) -> float:
        """Return the time after which no message from before a loss can still arrive; minus infinity without a loss."""
        ends = (float("inf") if loss.until_s is None else loss.until_s for loss in self._of(place))
        return max(ends, default=float("-inf"))

    def _of(self, place: Place) -> list[Lossy]:
        known = self._by_place.get(place)
        if known is None:
            known = self._by_place[place] = [
                loss
                for loss in self._declared
                if loss.topic in (None, place[0]) and loss.partition in (None, place[1])
            ]
        return known


class HighestBefore:
    """The highest number that was known strictly before a given time."""

    def __init__(self, known: Iterable[tuple[float, float]]) -> None:
        ordered = sorted(known)
        self._times = [time for time, _ in ordered]
        self._highest = list(accumulate((number for _, number in ordered), max))

    def at(self, time: float) -> float:
        """Return the highest number known before `time`, or minus infinity."""
        count = bisect_left(self._times, time)
        return self._highest[count - 1] if count else float("-inf")


class Facts:
    """A history with indexes for the invariants."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.losses = Losses(history.lossy)

    @cached_property
    def acknowledged(self) -> list[Send]:
        """Sends that all in-sync replicas have confirmed."""
        return [
            send for send in self.history.sends if send.acks == ALL_IN_SYNC and send.outcome is Outcome.OK
        ]

    @cached_property
    def acknowledged_offsets(self) -> dict[Place, list[int]]:
        """The offsets acknowledged with acks=all that no loss excuses, in rising order."""
        found: dict[Place, list[int]] = {}
        for send in self.acknowledged:
            place = (send.topic, send.partition)
            if send.offset is not None and not self.losses.excuse(place, send.offset, send.invoked_s):
                found.setdefault(place, []).append(send.offset)
        return {place: sorted(offsets) for place, offsets in found.items()}

    @cached_property
    def deleted_before(self) -> dict[Place, int]:
        """The highest offset of each partition below which a client requested deletion."""
        found: dict[Place, int] = {}
        for deletion in self.history.deleted:
            place = (deletion.topic, deletion.partition)
            found[place] = max(deletion.before_offset, found.get(place, 0))
        return found

    def begun_anew_at(self, place: Place, sends: Iterable[Send]) -> int:
        """Return the highest start offset of a replica that began empty and led before all these
        sends were answered.
        """
        limit_s = max((inf if send.completed_s is None else send.completed_s for send in sends), default=0.0)
        return max(
            (
                begin.offset
                for begin in self.history.begun_anew
                if (begin.topic, begin.partition) == place and begin.at_s <= limit_s
            ),
            default=0,
        )

    def may_be_deleted(self, send: Send) -> bool:
        """Return whether records of the send's partition were deleted, by retention or on request."""
        place = (send.topic, send.partition)
        read = self.final.get(place)
        return place in self.deleted_before or (read is not None and read.log_start > 0)

    @cached_property
    def sent(self) -> dict[Place, dict[bytes, list[Send]]]:
        """Sends by partition and value."""
        found: dict[Place, dict[bytes, list[Send]]] = {}
        for send in self.history.sends:
            found.setdefault((send.topic, send.partition), {}).setdefault(send.value, []).append(send)
        return found

    @cached_property
    def sent_to(self) -> dict[Place, list[Send]]:
        """Sends by partition."""
        found: dict[Place, list[Send]] = {}
        for send in self.history.sends:
            found.setdefault((send.topic, send.partition), []).append(send)
        return found

    @cached_property
    def compacted(self) -> set[Place]:
        """Partitions whose records have keys."""
        return {(send.topic, send.partition) for send in self.history.sends if send.key is not None}

    @cached_property
    def topics_sent_to(self) -> set[str]:
        return {topic for topic, _ in self.sent}

    @cached_property
    def by_producer(self) -> dict[tuple[str, Place], list[Send]]:
        """Sends of each producer to each partition, in its order."""
        found: dict[tuple[str, Place], list[Send]] = {}
        for send in self.history.sends:
            found.setdefault((send.producer, (send.topic, send.partition)), []).append(send)
        for sends in found.values():
            sends.sort(key=lambda send: send.sequence_number)
        return found

    @cached_property
    def final(self) -> dict[Place, FinalRead]:
        """The last final read of each partition."""
        return {(read.topic, read.partition): read for read in self.history.final_reads}

    @cached_property
    def final_values(self) -> dict[Place, dict[int, bytes]]:
        """Values at each offset at the end."""
        return {place: dict(read.records) for place, read in self.final.items()}

    @cached_property
    def read_at(self) -> dict[Place, dict[bytes, list[int]]]:
        """The offsets at which each value was read, by polls that no loss excuses and by final reads."""
        found: dict[Place, dict[bytes, list[int]]] = {}
        for poll in self.history.polls:
            place = (poll.topic, poll.partition)
            if not self.losses.excuse(place, poll.offset, poll.at_s):
                offsets = found.setdefault(place, {}).setdefault(poll.value, [])
                if poll.offset not in offsets:
                    offsets.append(poll.offset)
        for read in self.history.final_reads:
            values = found.setdefault((read.topic, read.partition), {})
            for offset, value in read.records:
                offsets = values.setdefault(value, [])
                if offset not in offsets:
                    offsets.append(offset)
        return found

    @cached_property
    def ever_read(self) -> dict[Place, dict[bytes, int]]:
        """Values that any client read, each with an offset where it was read."""
        found: dict[Place, dict[bytes, int]] = {}
        for poll in self.history.polls:
            found.setdefault((poll.topic, poll.partition), {})[poll.value] = poll.offset
        for read in self.history.final_reads:
            found.setdefault((read.topic, read.partition), {}).update(
                (value, offset) for offset, value in read.records
            )
        return found

    @cached_property
    def highest_read(self) -> dict[Place, int]:
        """The highest offset that any client read."""
        return {place: max(values.values(), default=-1) for place, values in self.ever_read.items()}

    @cached_property
    def transactions(self) -> dict[str, Transaction]:
        """Transactions by name."""
        return {transaction.name: transaction for transaction in self.history.transactions}

    @cached_property
    def wholes(self) -> dict[str, list[Transaction]]:
        """All parts of each shared transaction, by the name of the owner's part."""
        found: dict[str, list[Transaction]] = {}
        for transaction in self.history.transactions:
            found.setdefault(transaction.whole, []).append(transaction)
        return found

    @cached_property
    def sent_in(self) -> dict[str, list[Send]]:
        """Sends of each transaction, by the transaction's name."""
        found: dict[str, list[Send]] = {}
        for send in self.history.sends:
            if send.transaction is not None:
                found.setdefault(send.transaction, []).append(send)
        return found

    def replaced_s(self, transaction: Transaction) -> float | None:
        """Return the time at which another producer first got the transactional id afterwards; None if it never
        happened.
        """
        mine = (transaction.producer_id, transaction.producer_epoch)
        return min(
            (
                identity.at_s
                for identity in self._given.get(transaction.transactional_id, ())
                if (identity.producer_id, identity.producer_epoch) > mine
                and identity.producer != transaction.producer
            ),
            default=None,
        )

    @cached_property
    def _given(self) -> dict[str, list[ProducerIdentity]]:
        """Producers that received each transactional id."""
        found: dict[str, list[ProducerIdentity]] = {}
        for identity in self.history.identities:
            if identity.transactional_id is not None:
                found.setdefault(identity.transactional_id, []).append(identity)
        return found

    def read_in(self, poll: Poll) -> Transaction | None:
        """Return the transaction whose record a poll returned, or None if it is not certain."""
        sends = self.sent.get((poll.topic, poll.partition), {}).get(poll.value, [])
        found = [send for send in sends if send.offset == poll.offset]
        if not found:
            found = [send for send in sends if send.offset is None]
        name = found[0].transaction if len(found) == 1 else None
        return None if name is None else self.transactions[name]

    def stands(self, send: Send, values: dict[int, bytes], offsets: dict[bytes, list[int]]) -> bool:
        """Return whether the record certainly exists. `values` are the values by offset; `offsets` are the offsets of
        each value.

        Pipelines may send a value more than once.
        """
        if send.offset is not None:
            return values.get(send.offset) == send.value
        sends = self.sent[send.topic, send.partition][send.value]
        placed = {sent.offset for sent in sends if sent.offset is not None}
        alone = sum(sent.offset is None for sent in sends) == 1
        return alone and any(offset not in placed for offset in offsets.get(send.value, ()))

    def was_read(self, send: Send) -> bool:
        """Return whether a client certainly read the record, committed or not."""
        place = (send.topic, send.partition)
        return len(self.sent[place][send.value]) == 1 and send.value in self.ever_read.get(place, {})

    @cached_property
    def committed_final(self) -> dict[Place, dict[int, bytes]]:
        """Values that read-committed consumers find at each offset at the end."""
        return {place: dict(read.records) for place, read in self._committed_reads.items()}

    @cached_property
    def _committed_reads(self) -> dict[Place, CommittedRead]:
        """The last read-committed final read of each partition."""
        return {(read.topic, read.partition): read for read in self.history.committed_reads}

    @cached_property
    def _committed_offsets(self) -> dict[Place, dict[bytes, list[int]]]:
        """Offsets of each value for read-committed consumers."""
        found: dict[Place, dict[bytes, list[int]]] = {}
        for place, values in self.committed_final.items():
            here = found.setdefault(place, {})
            for offset, value in values.items():
                here.setdefault(value, []).append(offset)
        return found

    def stands_committed(self, send: Send) -> bool:
        """Return whether read-committed consumers certainly find the record at the end."""
        place = (send.topic, send.partition)
        values = self.committed_final.get(place)
        return values is not None and self.stands(send, values, self._committed_offsets[place])

    @cached_property
    def committed_sessions(self) -> set[str]:
        """Consumer sessions with read-committed isolation."""
        return {poll.session for poll in self.history.polls if poll.committed}

    @cached_property
    def sessions(self) -> dict[tuple[str, Place], list[Poll | Position]]:
        """Polls and position changes of each consumer session in each partition, in order."""
        found: dict[tuple[str, Place], list[Poll | Position]] = {}
        for event in self.history.consumed:
            found.setdefault((event.session, (event.topic, event.partition)), []).append(event)
        return found

    @cached_property
    def end_s(self) -> float:
        """The latest time of the history."""
        finished: list[Send | Commit | Fetched | Transaction] = [
            *self.history.sends,
            *self.history.transactions,
            *self.history.commits,
            *self.history.fetched,
        ]
        ends = [operation.completed_s for operation in finished if operation.completed_s is not None]
        return max([*map(begun_s, self.history), *ends], default=0.0)

    def must_be_final(self, send: Send) -> bool:
        """Return whether the final read of the partition, if any, has to show an acknowledged send."""
        return self._must_stay(send) and not self.may_be_compacted(send)

    def must_stand_committed(self, send: Send) -> bool:
        """Return whether the final read-committed read has to show an acknowledged send of a committed transaction."""
        read = self._committed_reads.get((send.topic, send.partition))
        # This read follows the final read of everything: more may have been deleted meanwhile.
        deleted = read is not None and _was_deleted(send, read)
        return (
            not deleted
            and self._must_stay(send)
            and not self._is_superseded(send)
            and not self.may_have_lost_its_commit(send)
        )

    def may_have_lost_its_commit(self, send: Send) -> bool:
        """Return whether the record stood in the log of an uncleanly elected leader without its
        transaction's marker.
        """
        if send.transaction is None:
            return False
        producer_id = self.transactions[send.transaction].producer_id
        return self.losses.undecided((send.topic, send.partition), producer_id, send.offset, send.invoked_s)

    def may_be_compacted(self, send: Send) -> bool:
        """Return whether compaction may have removed a send: a later record of its key is committed, or the send may be
        uncommitted.
        """
        if send.key is None:
            return False
        transaction = None if send.transaction is None else self.transactions[send.transaction]
        return self._is_superseded(send) or (transaction is not None and not transaction.is_committed)

    def _is_superseded(self, send: Send) -> bool:
        if send.key is None:
            return False
        found = self.last_of_keys.get((send.topic, send.partition), {}).get(send.key)
        if found is None:
            return False
        return found[1] != send.value if send.offset is None else found[0] > send.offset

    @cached_property
    def last_of_keys(self) -> dict[Place, dict[bytes, tuple[int, bytes]]]:
        """The last committed record of each key in compacted topics, as readers find it at the end, with its offset."""
        found: dict[Place, dict[bytes, tuple[int, bytes]]] = {}
        for place, values in self.committed_final.items():
            for offset, value in sorted(values.items()):
                for send in self.sent.get(place, {}).get(value, ()):
                    if send.key is not None:
                        found.setdefault(place, {})[send.key] = (offset, value)
        return found

    def was_taken(self, poll: Poll) -> bool:
        """Return whether compaction may have removed the polled record."""
        sends = self.sent.get((poll.topic, poll.partition), {}).get(poll.value, ())
        may_be = self._is_superseded if poll.committed else self.may_be_compacted
        return any(map(may_be, sends))

    def _must_stay(self, send: Send) -> bool:
        place = (send.topic, send.partition)
        read = self.final.get(place)
        if read is None or self.losses.excuse(place, send.offset, send.invoked_s):
            return False
        later = read.at_s > 0 and send.completed_s is not None and send.completed_s > read.at_s
        return not (later or _was_deleted(send, read))


def _was_deleted(send: Send, read: FinalRead | CommittedRead) -> bool:
    """Return whether the send may be below the log start that this reader saw."""
    return read.log_start > 0 if send.offset is None else send.offset < read.log_start

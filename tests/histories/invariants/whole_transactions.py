"""The promise to readers of whole transactions."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from ..operations import Outcome, Send
from ..transactions import Marker, WholeRead
from .base import Invariant
from .facts import Facts, Place, ended, told


class NotWhole(Invariant):
    """A reader of whole transactions gets each committed transaction with records in its partitions once, whole, in the
    order of the cluster's decisions.

    The reader gets none before its commit was requested, and gets the records of exactly the chosen writers. (Deleted
    records are exempt.)
    """

    scenarios = (10, 12, 34)

    def violations(self, facts: Facts) -> Iterator[str]:
        if not facts.history.whole_reads:
            return
        by_session: dict[str, list[WholeRead]] = {}
        for read in facts.history.whole_reads:
            by_session.setdefault(read.session, []).append(read)
        indexes = commit_indexes(facts)
        for session, reads in by_session.items():
            places = {place for name, place in facts.sessions if name == session}
            last = -1
            got: dict[int, str] = {}
            for read in reads:
                if read.commit_index <= last:
                    yield f"{read} came behind commit index {last}"
                last = max(last, read.commit_index)
                yield from self._one(facts, read, places, got)
            yield from self._passed_over(facts, session, places, indexes, got, last)

    def _one(self, facts: Facts, read: WholeRead, places: set[Place], got: dict[int, str]) -> Iterator[str]:
        values: dict[tuple[Place, int | None], bytes] = {
            ((topic, partition), offset): value for topic, partition, offset, value in read.records
        }
        names = {
            name
            for topic, partition, offset, value in read.records
            for name in _sent_in(facts, (topic, partition), offset, value)
        }
        found = {facts.transactions[name].whole for name in names}
        if len(found) != 1:
            yield f"{read} is of the transactions {sorted(names)}"
            return
        whole = got[read.commit_index] = found.pop()
        for transaction in facts.wholes[whole]:
            if transaction.name in names and (
                transaction.is_committed is False
                or transaction.asked_s is None
                or read.at_s < transaction.asked_s
            ):
                yield f"{read}, of {ended(transaction)}"
            if not transaction.commits:
                continue
            for send in facts.sent_in.get(transaction.name, ()):
                place = (send.topic, send.partition)
                if place in places and _stays(facts, send) and values.get((place, send.offset)) != send.value:
                    yield f"{read} lacks what {told(send)}"

    def _passed_over(
        self,
        facts: Facts,
        session: str,
        places: set[Place],
        indexes: dict[str, int],
        got: dict[int, str],
        last: int,
    ) -> Iterator[str]:
        for name, index in indexes.items():
            transaction = facts.transactions[name]
            if index >= last or not transaction.is_committed or got.get(index) == transaction.whole:
                continue
            for send in facts.sent_in[name]:
                if (send.topic, send.partition) in places and _stays(facts, send):
                    yield f"{session} went up to commit index {last} without {index}: {ended(transaction)}"
                    break


def commit_indexes(facts: Facts) -> dict[str, int]:
    """Return the commit index of each transaction that a log shows as committed, by name."""
    markers: dict[tuple[Place, int], dict[int, Marker]] = {}
    for dump in facts.history.dumps:
        for marker in dump.markers:
            if marker.commit_index >= 0:
                markers.setdefault(((dump.topic, dump.partition), marker.producer_id), {})[marker.offset] = (
                    marker
                )
    offsets = {whose: sorted(known) for whose, known in markers.items()}
    found: dict[str, int] = {}
    for name, transaction in facts.transactions.items():
        for send in facts.sent_in.get(name, ()):
            whose = ((send.topic, send.partition), transaction.producer_id)
            if send.offset is None or whose not in markers or not _stays(facts, send):
                continue
            place = bisect_right(offsets[whose], send.offset)
            if place < len(offsets[whose]):
                end = markers[whose][offsets[whose][place]]
                if end.commits:
                    found[name] = end.commit_index
                break
    return found


def _sent_in(facts: Facts, place: Place, offset: int, value: bytes) -> Iterator[str]:
    sends = facts.sent.get(place, {}).get(value, [])
    placed = [send for send in sends if send.offset == offset] or [
        send for send in sends if send.offset is None
    ]
    for send in placed:
        if send.transaction is not None:
            yield send.transaction


def _stays(facts: Facts, send: Send) -> bool:
    """Return whether a reader of its partition must find the record."""
    place = (send.topic, send.partition)
    return (
        send.outcome is Outcome.OK
        and send.offset is not None
        and send.offset >= facts.deleted_before.get(place, 0)
        and send.key is None
        and not facts.losses.touch(place)
    )

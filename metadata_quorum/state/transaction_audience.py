"""Who is told of a transaction: brokers with a replica of a partition that is outstanding in it, since each of them may
lead it next, and the broker through which its client spoke last.

A broker that has to know from now on, and did not before, is told all there is.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType

from ...protocol.cluster.transaction_table import (
    Place,
    TransactionMetadata,
    Writer,
    aborted_places,
    records_of,
    settled_record,
    transaction_record,
    writer_record,
)
from ...protocol.messages.metadata_records import Record
from ...protocol.messages.transaction_commands import ClientOrigin
from .transaction_session import with_session
from .workspace import Workspace

Audience = frozenset[int]


def tell_all(work: Workspace, record: Record) -> None:
    """Every broker may know of it."""
    work.emit(record)


def audience(
    work: Workspace, transaction: TransactionMetadata | None, more: Iterable[Place] = ()
) -> Audience:
    """Who knows of it, or has to once it has `more` partitions."""
    brokers: set[int] = set()
    if transaction is not None:
        brokers.add(transaction.session[0])
        for place in transaction.lacking:
            brokers.update(_replicas(work, place))
    for place in more:
        brokers.update(_replicas(work, place))
    brokers.discard(-1)
    return frozenset(brokers)


def introduce(work: Workspace, transaction: TransactionMetadata, newcomers: Audience) -> None:
    """Tell brokers that did not know it all there is about a transaction."""
    if newcomers:
        for record in list(records_of(transaction)):
            work.emit(record, newcomers)


class Telling:
    """Changes one transaction and tells whoever has to know. To be used as a context manager: at its end those who did
    not know it before are told all."""

    def __init__(
        self,
        work: Workspace,
        transactional_id: str,
        origin: ClientOrigin | None = None,
        new_places: Iterable[Place] = (),
    ) -> None:
        """`origin`: of the command; None if something changes it that no client asks for."""
        self._work = work
        self._id = transactional_id
        self._origin = origin if origin is not None and origin.is_client else None
        transaction = work.image.transactions.by_id.get(transactional_id)
        self._known = audience(work, transaction)
        self._wanted = self._known | audience(work, None, new_places)
        if self._origin is not None:
            self._wanted |= {self._origin.broker_id}

    def __enter__(self) -> Telling:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            introduce(self._work, self.transaction, self._wanted - self._known)

    @property
    def transaction(self) -> TransactionMetadata:
        """As it is now."""
        return self._work.image.transactions.by_id[self._id]

    def state(self, changed: TransactionMetadata, *, replaces: bool = False) -> None:
        """It is like this now, but for its writers; with `replaces` it has none any more. Who has not known it learns
        by that, too, what was aborted under its epoch (rule T11)."""
        if self._origin is not None:
            changed = with_session(changed, self._origin, self._work.image.offset + 1)
        record = transaction_record(changed, replaces=replaces)
        if replaces:
            self._known = self._wanted  # All that they knew is of an earlier one.
            before = self._work.image.transactions.by_id.get(self._id)
            if before is not None and (before.producer_id, before.producer_epoch) == (
                changed.producer_id,
                changed.producer_epoch,
            ):
                record.aborted = aborted_places(before)
        self._work.emit(record, self._known)

    def writes(self, producer_id: int, epoch: int, places: Iterable[Place]) -> None:
        """Somebody writes to these partitions, or is about to write."""
        self._work.emit(writer_record(self.transaction, Writer(producer_id, epoch), places), self._known)

    def settled(self, writer: Writer, places: Iterable[Place]) -> None:
        """These have their markers, or are gone. With the last ones a decided transaction is complete."""
        places = set(places)
        transaction = self.transaction
        left = any(number > (place in places) for place, number in transaction.lacking.items())
        completes = transaction.phase.is_decided and not left
        self._work.emit(settled_record(transaction, writer, places, completes=completes), self._known)


def _replicas(work: Workspace, place: Place) -> tuple[int, ...]:
    topic_id, index = place
    topic = work.image.topics_by_id.get(topic_id)
    state = topic.partitions.get(index) if topic is not None else None
    return () if state is None else state.replicas

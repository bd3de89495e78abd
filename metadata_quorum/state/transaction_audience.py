"""The brokers that learn of a transaction: brokers with a replica of a partition that is outstanding in it, since each
may lead next, and the broker of its client's last request.

A broker that joins this audience receives the whole transaction.
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
    """Emit a record for all brokers."""
    work.emit(record)


def audience(
    work: Workspace, transaction: TransactionMetadata | None, more: Iterable[Place] = ()
) -> Audience:
    """Return the brokers that know of a transaction, or must know of it once the partitions `more` are added."""
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
    """Emit the records of the whole transaction for brokers that did not know of it."""
    if newcomers:
        for record in list(records_of(transaction)):
            work.emit(record, newcomers)


class Telling:
    """A context manager around one command's changes of one transaction. It emits each change as records for the
    brokers that know the transaction, its audience. At its end, new members of the audience receive the whole
    transaction."""

    def __init__(
        self,
        work: Workspace,
        transactional_id: str,
        origin: ClientOrigin | None = None,
        new_places: Iterable[Place] = (),
    ) -> None:
        """`origin` is the client whose command changes the transaction; None if no client has asked for the change.
        `new_places` are partitions that the change adds."""
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
        """Current state of the transaction in the image."""
        return self._work.image.transactions.by_id[self._id]

    def state(self, changed: TransactionMetadata, *, replaces: bool = False) -> None:
        """Emit a new state of the transaction, except for its writers. With `replaces` the transaction is a new one
        without writers, and new members of the audience also learn which partitions were aborted under its epoch (rule
        T11)."""
        if self._origin is not None:
            changed = with_session(changed, self._origin, self._work.image.offset + 1)
        record = transaction_record(changed, replaces=replaces)
        if replaces:
            self._known = self._wanted  # their knowledge is of an earlier transaction
            before = self._work.image.transactions.by_id.get(self._id)
            if before is not None and (before.producer_id, before.producer_epoch) == (
                changed.producer_id,
                changed.producer_epoch,
            ):
                record.aborted = aborted_places(before)
        self._work.emit(record, self._known)

    def writes(self, producer_id: int, epoch: int, places: Iterable[Place]) -> None:
        """Add partitions that a writer writes to, or is about to write to."""
        self._work.emit(writer_record(self.transaction, Writer(producer_id, epoch), places), self._known)

    def settled(self, writer: Writer, places: Iterable[Place]) -> None:
        """Mark partitions of a writer as settled: they have their transaction marker, or are deleted. After its last
        partition a decided transaction is complete."""
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

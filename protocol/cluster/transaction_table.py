"""Transactions as a fold of metadata records: on quorum nodes all transactions, on brokers the transactions that
concern them.

A transactional id has one transaction at a time, which has a number. Each writer writes under its own producer id and
epoch: the owner, who began the transaction, and the writers that joined. After the decision, each partition that a
writer has written to gets that writer's marker. The transaction is complete when all partitions have all markers.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

from ..messages.transaction_records import (
    AbortedPlace,
    CommitIndexRecord,
    PooledWriter,
    TransactionalIdRemovedRecord,
    TransactionalRecord,
    TransactionRecord,
    TransactionSettledRecord,
    TransactionWriterRecord,
    WriterPartitions,
    WriterPoolRecord,
)

Place = tuple[bytes, int]
"""(topic id, partition index)"""


class Phase(IntEnum):
    """Phases of a transaction, from empty to complete, with Kafka's numbers."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5

    @property
    def is_decided(self) -> bool:
        """True if markers are being written: the outcome is decided and does not change any more."""
        return self in (Phase.PREPARE_COMMIT, Phase.PREPARE_ABORT)

    @property
    def commits(self) -> bool:
        """True if the transaction's decided outcome is a commit."""
        return self in (Phase.PREPARE_COMMIT, Phase.COMPLETE_COMMIT)

    @property
    def is_over(self) -> bool:
        """True if the transaction is complete or empty, so that the next transaction of the id may begin."""
        return self in (Phase.EMPTY, Phase.COMPLETE_COMMIT, Phase.COMPLETE_ABORT)


_COMPLETED = {Phase.PREPARE_COMMIT: Phase.COMPLETE_COMMIT, Phase.PREPARE_ABORT: Phase.COMPLETE_ABORT}


class Recovery(IntEnum):
    """Rules for a transaction's producer after an abort by the cluster: whether the producer may continue under the
    next epoch (KIP-588)."""

    NEVER = 0
    """The client cannot ask for the next epoch of a producer id that it has (KIP-360), so it is fenced."""
    POSSIBLE = 1
    """The producer may continue, if the cluster aborts its transaction."""
    OFFERED = 2
    """The cluster has aborted the transaction, and no client has begun a transaction or initialised the id since."""


class TransactionInconsistent(AssertionError):
    """A metadata record that does not fit the known transactions, or a broken invariant. The process must not
    continue."""


@dataclass(slots=True)
class Writer:
    """A producer id and epoch that writes in a transaction, with the partitions that it writes to. Partitions in
    `outstanding` have no transaction marker yet."""

    producer_id: int
    producer_epoch: int
    places: set[Place] = field(default_factory=set)
    outstanding: set[Place] = field(default_factory=set)
    committed: bool = False
    """True if the writer's records count; valid once the transaction is decided."""

    def copy(self) -> Writer:
        """Return a copy with separate sets of partitions."""
        return replace(self, places=set(self.places), outstanding=set(self.outstanding))


@dataclass(slots=True)
class TransactionMetadata:
    """The state of a transactional id: producer id and epoch, the newest transaction with its phase and writers, and
    the last application version."""

    transactional_id: str
    producer_id: int = -1
    producer_epoch: int = -1
    last_producer_epoch: int = -1
    last_producer_id: int = -1
    recovery: Recovery = Recovery.NEVER
    number: int = 0
    phase: Phase = Phase.EMPTY
    timeout_ms: int = 0
    commit_index: int = -1
    app_version: int = -1
    started_ms: int = -1
    updated_ms: int = -1
    session: tuple[int, int, int] = (-1, -1, -1)
    """Broker, broker epoch and connection through which the client last spoke."""
    session_offset: int = -1
    writers: dict[int, Writer] = field(default_factory=dict)
    """Writers by producer id, in the order in which they came."""
    lacking: dict[Place, int] = field(default_factory=dict)
    """Partitions with outstanding markers, each with the number of writers whose marker is missing."""
    pool: dict[int, int] = field(default_factory=dict)
    """Producer ids that writers besides the owner have had, each with its last epoch; the latest is last."""
    aborted: dict[Place, int] = field(default_factory=dict)
    """Partitions in which the owner has aborted a transaction under its present epoch, each with the number of the last
    one.

    A log that is missing the marker of that transaction has nothing of a later one (rule T11).
    """

    def but(self, **changes: Any) -> TransactionMetadata:
        """Return a copy with these fields changed, which shares the other values.

        Like `dataclasses.replace`, in a fifth of the time: each command of a client needs a few copies. Raises
        AttributeError for an unknown field.
        """
        other = TransactionMetadata(
            self.transactional_id,
            self.producer_id,
            self.producer_epoch,
            self.last_producer_epoch,
            self.last_producer_id,
            self.recovery,
            self.number,
            self.phase,
            self.timeout_ms,
            self.commit_index,
            self.app_version,
            self.started_ms,
            self.updated_ms,
            self.session,
            self.session_offset,
            self.writers,
            self.lacking,
            self.pool,
            self.aborted,
        )
        for name, value in changes.items():
            setattr(other, name, value)
        return other

    @property
    def outstanding(self) -> Iterator[tuple[Writer, Place]]:
        """Pairs of writer and partition whose transaction marker is not written yet, in a fixed order."""
        for writer in self.writers.values():
            for place in sorted(writer.outstanding):
                yield writer, place

    def marker_epoch(self, writer: Writer) -> int:
        """Return the producer epoch of this writer's markers.

        It is above the writer's own epoch if the owner took up the next epoch with the decision, or if the writer is
        not the owner. Then the log refuses later batches of the writer's own epoch.
        """
        if writer.producer_id == self.producer_id:
            return self.producer_epoch
        return writer.producer_epoch + 1

    def keeps_epoch(self, owner: Writer) -> bool:
        """Return whether the owner continues under the epoch under which it wrote, so that only numbers distinguish its
        transactions."""
        return (owner.producer_id, owner.producer_epoch) == (self.producer_id, self.producer_epoch)

    @property
    def former_producer(self) -> tuple[int, int]:
        """Producer id and epoch under which a client asked for the change to the present epoch, or under which the
        cluster aborted the transaction. The epoch is -1 if that producer was replaced."""
        former = self.last_producer_id if self.last_producer_id >= 0 else self.producer_id
        return former, self.last_producer_epoch

    def may_recover(self, producer_id: int, epoch: int) -> bool:
        """Return whether the cluster has aborted the transaction of this producer, and no client has used the id
        since."""
        return self.recovery is Recovery.OFFERED and (producer_id, epoch) == self.former_producer

    @property
    def is_settled(self) -> bool:
        """True if the transaction has its markers in all partitions of all writers."""
        return not self.lacking


class TransactionTable:
    """All transactional ids that this node knows, with their transactions, by id, by producer id and by partition."""

    def __init__(self) -> None:
        #: transactions by transactional id
        self.by_id: dict[str, TransactionMetadata] = {}
        #: transactions by the producer ids of owners, and of writers in open and decided transactions
        self.by_producer: dict[int, TransactionMetadata] = {}
        #: open and decided transactions with a marker outstanding, by partition and by producer id of the writer
        self._at_place: defaultdict[Place, dict[int, TransactionMetadata]] = defaultdict(dict)
        #: transactional ids whose markers are being written
        self.decided: set[str] = set()
        self.next_commit_index = 0

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, TransactionTable)
            and self.by_id == other.by_id
            and self.next_commit_index == other.next_commit_index
        )

    __hash__ = None  # type: ignore[assignment]

    def at(self, place: Place) -> Mapping[int, TransactionMetadata]:
        """Return the transactions with a marker outstanding in a partition, by producer id of the writer."""
        return self._at_place.get(place, {})

    def writer(self, producer_id: int) -> tuple[TransactionMetadata, Writer] | None:
        """Return the open or decided transaction and the writer that a producer id belongs to now; None if there is
        none."""
        transaction = self.by_producer.get(producer_id)
        writer = transaction.writers.get(producer_id) if transaction is not None else None
        return None if transaction is None or writer is None else (transaction, writer)

    # ------------------------------------------------------------ folding

    def apply(self, record: TransactionalRecord) -> None:
        """Apply one metadata record about transactions. Raises TransactionInconsistent."""
        match record:
            case TransactionRecord():
                self._take(record)
            case TransactionWriterRecord():
                self._write(record)
            case TransactionSettledRecord():
                self._settle(record)
            case WriterPoolRecord():
                transaction = self._known(record.transactional_id)
                for writer in record.writers:
                    _into_pool(transaction, writer.producer_id, writer.producer_epoch)
            case TransactionalIdRemovedRecord():
                self.forget(record.transactional_id)
            case CommitIndexRecord():
                self.next_commit_index = max(self.next_commit_index, record.next_commit_index)

    def forget(self, transactional_id: str) -> None:
        """Forget a transactional id, if it is known."""
        transaction = self.by_id.pop(transactional_id, None)
        if transaction is not None:
            self._forget_writers(transaction)
            self.by_producer.pop(transaction.producer_id, None)
            self.decided.discard(transactional_id)

    def _take(self, record: TransactionRecord) -> None:
        transaction = self.by_id.get(record.transactional_id)
        if transaction is None:
            transaction = self.by_id[record.transactional_id] = TransactionMetadata(record.transactional_id)
        if record.replaces:
            self._forget_writers(transaction)
        if transaction.producer_id != record.producer_id:
            self.by_producer.pop(transaction.producer_id, None)
        if (transaction.producer_id, transaction.producer_epoch) != (
            record.producer_id,
            record.producer_epoch,
        ):
            transaction.aborted.clear()
        for entry in record.aborted:
            transaction.aborted[entry.topic_id, entry.partition] = entry.number
        transaction.producer_id = record.producer_id
        transaction.producer_epoch = record.producer_epoch
        transaction.last_producer_epoch = record.last_producer_epoch
        transaction.last_producer_id = record.last_producer_id
        transaction.recovery = Recovery(record.recovery)
        transaction.number = record.number
        transaction.phase = Phase(record.phase)
        transaction.timeout_ms = record.timeout_ms
        transaction.commit_index = record.commit_index
        transaction.app_version = record.app_version
        transaction.started_ms, transaction.updated_ms = record.started_ms, record.updated_ms
        transaction.session = (record.session_broker, record.session_epoch, record.session_connection)
        transaction.session_offset = record.session_offset
        self.by_producer[record.producer_id] = transaction
        self.next_commit_index = max(self.next_commit_index, record.commit_index + 1)
        if not transaction.phase.is_decided:
            self.decided.discard(record.transactional_id)
            return
        self.decided.add(record.transactional_id)
        committed = frozenset(record.committed)
        for producer_id, writer in transaction.writers.items():
            writer.committed = producer_id in committed
            self.by_producer[producer_id] = (
                transaction  # also the entry of the owner, which may have moved on
            )
        owner = transaction.writers.get(transaction.producer_id)
        if owner is not None and transaction.keeps_epoch(owner) and not transaction.phase.commits:
            transaction.aborted.update(dict.fromkeys(owner.places, transaction.number))

    def _write(self, record: TransactionWriterRecord) -> None:
        transaction = self._known(record.transactional_id)
        writer = transaction.writers.get(record.producer_id)
        if writer is None or writer.producer_epoch != record.producer_epoch:
            if writer is not None:
                self._leave_all(transaction, writer)
            writer = Writer(record.producer_id, record.producer_epoch)
            transaction.writers[record.producer_id] = writer
            if record.producer_id not in (transaction.producer_id, transaction.last_producer_id):
                _into_pool(transaction, record.producer_id, record.producer_epoch)
        self.by_producer[record.producer_id] = transaction
        for place in places_of(record.topics):
            writer.places.add(place)
            if place not in writer.outstanding:
                writer.outstanding.add(place)
                transaction.lacking[place] = transaction.lacking.get(place, 0) + 1
                self._at_place[place][record.producer_id] = transaction

    def _settle(self, record: TransactionSettledRecord) -> None:
        transaction = self._known(record.transactional_id)
        writer = transaction.writers.get(record.producer_id)
        for place in places_of(record.topics):
            if writer is None or place not in writer.outstanding:
                raise TransactionInconsistent(f"{place} of {transaction} is settled, and was not outstanding")
            self._leave(transaction, writer, place)
        if record.completes:
            if not transaction.phase.is_decided or not transaction.is_settled:
                raise TransactionInconsistent(f"{transaction} is not complete")
            transaction.phase = _COMPLETED[transaction.phase]
            self.decided.discard(record.transactional_id)
            self._forget_writers(transaction)
            self.by_producer[transaction.producer_id] = transaction

    def _forget_writers(self, transaction: TransactionMetadata) -> None:
        for producer_id, writer in transaction.writers.items():
            self._leave_all(transaction, writer)
            self.by_producer.pop(producer_id, None)
        transaction.writers.clear()

    def _leave_all(self, transaction: TransactionMetadata, writer: Writer) -> None:
        for place in list(writer.outstanding):
            self._leave(transaction, writer, place)

    def _leave(self, transaction: TransactionMetadata, writer: Writer, place: Place) -> None:
        writer.outstanding.remove(place)
        transaction.lacking[place] -= 1
        if not transaction.lacking[place]:
            del transaction.lacking[place]
        here = self._at_place[place]
        del here[writer.producer_id]
        if not here:
            del self._at_place[place]

    def _known(self, transactional_id: str) -> TransactionMetadata:
        transaction = self.by_id.get(transactional_id)
        if transaction is None:
            raise TransactionInconsistent(f"a record is about {transactional_id!r}, which is not known")
        return transaction

    # ------------------------------------------------------------ all of it

    def copy(self) -> TransactionTable:
        """Return a snapshot that remains unchanged while this table changes."""
        copy = TransactionTable()
        copy.next_commit_index = self.next_commit_index
        copy.decided = set(self.decided)
        for name, transaction in self.by_id.items():
            writers = {number: writer.copy() for number, writer in transaction.writers.items()}
            copied = copy.by_id[name] = transaction.but(
                writers=writers,
                lacking=dict(transaction.lacking),
                pool=dict(transaction.pool),
                aborted=dict(transaction.aborted),
            )
            copy.by_producer[transaction.producer_id] = copied
            copy.by_producer.update(dict.fromkeys(writers, copied))
            for writer, place in copied.outstanding:
                copy._at_place[place][writer.producer_id] = copied
        return copy

    def records(self) -> Iterator[TransactionalRecord]:
        """Yield the records that rebuild this table."""
        if self.next_commit_index:
            yield CommitIndexRecord(next_commit_index=self.next_commit_index)
        for _, transaction in sorted(self.by_id.items()):
            yield from records_of(transaction)

    def check(self) -> None:
        """Check the invariants. Raises TransactionInconsistent if one is broken."""
        outstanding: dict[Place, set[int]] = {}
        for name, transaction in self.by_id.items():
            self._check_one(name, transaction)
            for writer, place in transaction.outstanding:
                outstanding.setdefault(place, set()).add(writer.producer_id)
        if outstanding != {place: set(here) for place, here in self._at_place.items()}:
            raise TransactionInconsistent("what is outstanding by partition and by transaction differs")
        if self.decided != {name for name, transaction in self.by_id.items() if transaction.phase.is_decided}:
            raise TransactionInconsistent(f"{self.decided} are not the decided ones")

    def _check_one(self, name: str, transaction: TransactionMetadata) -> None:
        phase = transaction.phase
        wrong = (
            transaction.transactional_id != name
            or self.by_producer.get(transaction.producer_id) is not transaction
            or any(self.by_producer.get(writer) is not transaction for writer in transaction.writers)
            or (phase.is_over and transaction.writers)
            or (phase.is_decided and transaction.is_settled)
            or (phase in (Phase.EMPTY, Phase.ONGOING)) != (transaction.commit_index < 0)
            or transaction.commit_index >= self.next_commit_index
            or any(not writer.outstanding <= writer.places for writer in transaction.writers.values())
            or Counter(place for _, place in transaction.outstanding) != transaction.lacking
        )
        if wrong:
            raise TransactionInconsistent(
                f"{name!r} is {transaction}, next commit index {self.next_commit_index}"
            )


def _into_pool(transaction: TransactionMetadata, producer_id: int, producer_epoch: int) -> None:
    transaction.pool.pop(producer_id, None)
    transaction.pool[producer_id] = producer_epoch


def _committed(transaction: TransactionMetadata) -> list[int]:
    return sorted(writer.producer_id for writer in transaction.writers.values() if writer.committed)


def places_of(topics: Iterable[WriterPartitions]) -> Iterator[Place]:
    """Yield each partition of these lists as (topic id, index)."""
    for topic in topics:
        for index in topic.partitions:
            yield topic.topic_id, index


def by_topic(places: Iterable[Place]) -> list[WriterPartitions]:
    """Group partitions, given as (topic id, index), by topic in the form that metadata records have."""
    topics: dict[bytes, list[int]] = {}
    for topic_id, index in sorted(places):
        topics.setdefault(topic_id, []).append(index)
    return [WriterPartitions(topic_id=topic_id, partitions=indexes) for topic_id, indexes in topics.items()]


def transaction_record(transaction: TransactionMetadata, *, replaces: bool = False) -> TransactionRecord:
    """Return the metadata record of a transaction's state, without its writers. With `replaces` its reader drops the
    writers that it knows."""
    broker, epoch, connection = transaction.session
    return TransactionRecord(
        transactional_id=transaction.transactional_id,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        last_producer_epoch=transaction.last_producer_epoch,
        last_producer_id=transaction.last_producer_id,
        number=transaction.number,
        phase=transaction.phase,
        timeout_ms=transaction.timeout_ms,
        commit_index=transaction.commit_index,
        app_version=transaction.app_version,
        started_ms=transaction.started_ms,
        updated_ms=transaction.updated_ms,
        session_broker=broker,
        session_epoch=epoch,
        session_connection=connection,
        session_offset=transaction.session_offset,
        replaces=replaces,
        committed=_committed(transaction) if transaction.phase.is_decided else [],
        recovery=transaction.recovery,
    )


def aborted_places(transaction: TransactionMetadata) -> list[AbortedPlace]:
    """Return the partitions in which the owner has aborted a transaction under its present epoch, in the form of
    records."""
    return [
        AbortedPlace(topic_id=topic_id, partition=index, number=number)
        for (topic_id, index), number in transaction.aborted.items()
    ]


def writer_record(
    transaction: TransactionMetadata, writer: Writer, places: Iterable[Place]
) -> TransactionWriterRecord:
    """Return the metadata record that adds a writer to a transaction, or partitions to a writer."""
    return TransactionWriterRecord(
        transactional_id=transaction.transactional_id,
        producer_id=writer.producer_id,
        producer_epoch=writer.producer_epoch,
        topics=by_topic(places),
    )


def settled_record(
    transaction: TransactionMetadata, writer: Writer, places: Iterable[Place], *, completes: bool = False
) -> TransactionSettledRecord:
    """Return the metadata record which states that partitions of a writer have their markers; with `completes` the
    transaction is complete."""
    return TransactionSettledRecord(
        transactional_id=transaction.transactional_id,
        producer_id=writer.producer_id,
        topics=by_topic(places),
        completes=completes,
    )


def records_of(transaction: TransactionMetadata) -> Iterator[TransactionalRecord]:
    """Yield the records that describe a transaction completely, also for a reader that may know an earlier one."""
    first = transaction_record(transaction, replaces=True)
    first.aborted = aborted_places(transaction)
    yield first
    for writer in transaction.writers.values():
        yield writer_record(transaction, writer, writer.places)
        if settled := writer.places - writer.outstanding:
            yield settled_record(transaction, writer, settled)
    if any(writer.committed for writer in transaction.writers.values()):
        yield transaction_record(transaction)
    if transaction.pool:
        pooled = [
            PooledWriter(producer_id=producer_id, producer_epoch=epoch)
            for producer_id, epoch in transaction.pool.items()
        ]
        yield WriterPoolRecord(transactional_id=transaction.transactional_id, writers=pooled)

"""Metadata records of transactions. They go to the brokers that have a replica of a partition in the transaction, and
to the one through which its client speaks; see `transaction_table`."""

from __future__ import annotations

from ..schema import Message, array, boolean, data, int8, int16, int32, int64, string, uuid


@data()
class AbortedPlace(Message):
    """A partition in which the owner has aborted something under its present epoch."""

    topic_id: bytes = uuid(about="Topic.")
    partition: int = int32(about="Index.")
    number: int = int32(about="Of the last transaction that was aborted there.")


@data()
class TransactionRecord(Message):
    """The state of a transactional id, without the partitions of its writers."""

    transactional_id: str = string(about="As the client named it.")
    producer_id: int = int64(default=-1, about="Of the producer that owns the transaction.")
    producer_epoch: int = int16(default=-1, about="The owner's; requests with another one are refused.")
    last_producer_epoch: int = int16(
        default=-1,
        about="Under which the transaction was ended that a repeated request may mean; -1 for none.",
    )
    last_producer_id: int = int64(
        default=-1, about="The owner's producer id then, if it is another one; -1 if not."
    )
    number: int = int32(about="Of the newest transaction, 0 before the first.")
    phase: int = int8(about="A Phase.")
    timeout_ms: int = int32(about="How long a transaction may stay open.")
    commit_index: int = int64(default=-1, about="Rises with every transaction decided anywhere; -1 before.")
    app_version: int = int64(default=-1, about="Of the last commit that named one.")
    started_ms: int = int64(
        default=-1, about="When the newest transaction began, by its client's broker; -1 never."
    )
    updated_ms: int = int64(default=-1, about="When its client last spoke, by its broker's clock.")
    session_broker: int = int32(default=-1, about="Through which broker its client last spoke.")
    session_epoch: int = int64(default=-1, about="That broker's epoch.")
    session_connection: int = int64(default=-1, about="And the connection, by number.")
    session_offset: int = int64(default=-1, about="Metadata offset after the last command of its client.")
    replaces: bool = boolean(about="Whether writers known before are of an earlier transaction.")
    committed: list[int] = array(int64, about="Decided: producer ids of the writers whose records count.")
    aborted: list[AbortedPlace] = array(
        AbortedPlace, versions="0+", tag=0, about="For those who did not hear of it; empty for others."
    )
    recovery: int = int8("0+", tag=1, about="A Recovery.")


@data()
class WriterPartitions(Message):
    """Partitions of one topic."""

    topic_id: bytes = uuid(about="Topic.")
    partitions: list[int] = array(int32, about="Indexes.")


@data()
class TransactionWriterRecord(Message):
    """Somebody writes in a transaction: to these partitions beside those already known."""

    transactional_id: str = string(about="Whose transaction.")
    producer_id: int = int64(about="The writer's own; the owner's if it is the owner.")
    producer_epoch: int = int16(about="Under which it writes.")
    topics: list[WriterPartitions] = array(WriterPartitions, about="That it writes to.")


@data()
class TransactionSettledRecord(Message):
    """These partitions of a writer have their marker, or are gone."""

    transactional_id: str = string(about="Whose transaction.")
    producer_id: int = int64(about="The writer's.")
    topics: list[WriterPartitions] = array(WriterPartitions, about="Settled.")
    completes: bool = boolean(about="Whether the decided transaction is complete with this.")


@data()
class PooledWriter(Message):
    """A producer id that a writer beside the owner has had."""

    producer_id: int = int64(about="Free, unless it writes now.")
    producer_epoch: int = int16(about="The last that was given out.")


@data()
class WriterPoolRecord(Message):
    """The producer ids of a transactional id's writers; told in snapshots."""

    transactional_id: str = string(about="Whose.")
    writers: list[PooledWriter] = array(PooledWriter, about="All there are.")


@data()
class TransactionalIdRemovedRecord(Message):
    """A transactional id was not used for long, or deleted, and is forgotten."""

    transactional_id: str = string(about="Which.")


@data()
class CommitIndexRecord(Message):
    """How many transactions have been decided so far; told in snapshots, since the ids may be gone."""

    next_commit_index: int = int64(about="Of the next one.")


TransactionalRecord = (
    TransactionRecord
    | TransactionWriterRecord
    | TransactionSettledRecord
    | WriterPoolRecord
    | TransactionalIdRemovedRecord
    | CommitIndexRecord
)

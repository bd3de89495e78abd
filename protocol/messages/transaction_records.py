"""Metadata records of transactions; see `transaction_table`.

They are sent to the brokers that have a replica of a partition in the transaction, and to the broker through which its
client speaks.
"""

from __future__ import annotations

from ..wire.schema import Message, array, boolean, data, int8, int16, int32, int64, string, uuid


@data()
class AbortedPlace(Message):
    """A partition in which the owner has aborted a transaction under its present epoch."""

    topic_id: bytes = uuid(about="Id of the topic.")
    partition: int = int32(about="Partition index.")
    number: int = int32(about="Number of the last transaction that was aborted there.")


@data()
class TransactionRecord(Message):
    """The state of a transactional id, without the partitions of its writers."""

    transactional_id: str = string(about="Transactional id, as the client named it.")
    producer_id: int = int64(default=-1, about="Producer id of the owner.")
    producer_epoch: int = int16(
        default=-1, about="Producer epoch of the owner; requests with another epoch are refused."
    )
    last_producer_epoch: int = int16(
        default=-1,
        about="Producer epoch under which the last transaction was ended, since a repeated request may carry it; -1 "
        "for none.",
    )
    last_producer_id: int = int64(
        default=-1, about="Producer id of the owner then, if it was another one; -1 if not."
    )
    number: int = int32(about="Number of the newest transaction; 0 before the first.")
    phase: int = int8(about="Phase of the newest transaction, a Phase.")
    timeout_ms: int = int32(about="Time that a transaction may stay open, in ms.")
    commit_index: int = int64(
        default=-1,
        about="Commit index of the newest decision; rises with every transaction decided anywhere; -1 before.",
    )
    app_version: int = int64(
        default=-1, about="Application version of the last commit that named one; -1 for none."
    )
    started_ms: int = int64(
        default=-1,
        about="Time at which the newest transaction began, by the clock of its client's broker, in ms since 1970;"
        " -1 never.",
    )
    updated_ms: int = int64(
        default=-1,
        about="Time at which the client last spoke, by the clock of its broker, in ms since 1970; -1 never.",
    )
    session_broker: int = int32(default=-1, about="Id of the broker through which the client last spoke.")
    session_epoch: int = int64(default=-1, about="Epoch of that broker's registration.")
    session_connection: int = int64(
        default=-1, about="Number of the connection through which the client last spoke."
    )
    session_offset: int = int64(default=-1, about="Metadata offset after the last command of the client.")
    replaces: bool = boolean(about="Whether the writers known before belong to an earlier transaction.")
    committed: list[int] = array(
        int64, about="Producer ids of the writers whose records count, once the transaction is decided."
    )
    aborted: list[AbortedPlace] = array(
        AbortedPlace,
        versions="0+",
        tag=0,
        about="Partitions with aborted transactions, for brokers that did not learn of them before; empty for "
        "other brokers.",
    )
    recovery: int = int8("0+", tag=1, about="Recovery that the client supports, a Recovery.")


@data()
class WriterPartitions(Message):
    """Partitions of one topic that a writer of a transaction writes to."""

    topic_id: bytes = uuid(about="Id of the topic.")
    partitions: list[int] = array(int32, about="Partition indexes.")


@data()
class TransactionWriterRecord(Message):
    """A writer (producer id and epoch) in a transaction, with partitions that it writes to besides those already
    known."""

    transactional_id: str = string(about="Transactional id of the transaction.")
    producer_id: int = int64(about="Producer id of the writer, which may be the owner.")
    producer_epoch: int = int16(about="Producer epoch under which it writes.")
    topics: list[WriterPartitions] = array(WriterPartitions, about="Partitions that it writes to, by topic.")


@data()
class TransactionSettledRecord(Message):
    """Partitions of a transaction's writer that have the writer's transaction marker, or are deleted."""

    transactional_id: str = string(about="Transactional id of the transaction.")
    producer_id: int = int64(about="Producer id of the writer.")
    topics: list[WriterPartitions] = array(WriterPartitions, about="Partitions, by topic.")
    completes: bool = boolean(about="Whether the decided transaction is complete with this record.")


@data()
class PooledWriter(Message):
    """A producer id that a writer of the transactional id's transactions had, other than the owner's, with its last
    epoch."""

    producer_id: int = int64(about="Producer id; free, unless it writes now.")
    producer_epoch: int = int16(about="Last producer epoch that was given out.")


@data()
class WriterPoolRecord(Message):
    """The producer ids of a transactional id's writers. The record occurs in snapshots only."""

    transactional_id: str = string(about="Transactional id.")
    writers: list[PooledWriter] = array(PooledWriter, about="Producer ids of all its writers.")


@data()
class TransactionalIdRemovedRecord(Message):
    """Removal of a transactional id that was deleted, or not used for long."""

    transactional_id: str = string(about="Transactional id.")


@data()
class CommitIndexRecord(Message):
    """The number of transactions decided so far. The record occurs in snapshots only, since the ids of decided
    transactions may be gone."""

    next_commit_index: int = int64(about="Commit index of the next decision.")


TransactionalRecord = (
    TransactionRecord
    | TransactionWriterRecord
    | TransactionSettledRecord
    | WriterPoolRecord
    | TransactionalIdRemovedRecord
    | CommitIndexRecord
)

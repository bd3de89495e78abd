"""Commands about transactions and their results."""

from __future__ import annotations

from ..wire.schema import Message, array, boolean, data, int16, int32, int64, nested, string, uuid
from .command import Command, CommandResult, PlainResult
from .transaction_records import WriterPartitions


@data()
class ClientOrigin(Message):
    """Origin of a client's request: the broker and connection that it came through, and the metadata offset of the
    broker's image when that connection was made, at the latest.

    By it the quorum distinguishes a request that was delayed on an old connection from a request of a client that came
    back (KAFKA-17754).
    """

    broker_id: int = int32(default=-1, about="Id of the broker that the client speaks to.")
    broker_epoch: int = int64(default=-1, about="Epoch of the broker's registration.")
    connection: int = int64(
        default=-1,
        about="Number of the connection; numbers rise. -1: no client's own request led to the command.",
    )
    birth: int = int64(
        default=-1, about="Metadata offset of the broker's image when the connection was made, at the latest."
    )
    now_ms: int = int64(default=-1, about="Time by that broker's clock, in ms since 1970.")

    @property
    def is_client(self) -> bool:
        """True if a client's own request led to the command; False if a broker or the quorum sent it by itself."""
        return self.connection >= 0


@data()
class InitTransactionalIdResult(CommandResult):
    """Result of InitTransactionalId: the producer id and epoch to use."""

    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str = string(about="Explanation for people.")
    producer_id: int = int64(default=-1, about="Producer id; -1 if refused.")
    producer_epoch: int = int16(default=-1, about="Producer epoch; -1 if refused.")
    app_version: int = int64(
        default=-1, about="Application version of the last commit that named one; -1 for none."
    )


@data()
class InitTransactionalId(Command[InitTransactionalIdResult]):
    """Command of a producer that begins to use a transactional id, or continues after an error (KIP-360)."""

    transactional_id: str = string(about="Transactional id, not empty.")
    timeout_ms: int = int32(about="Time that its transactions may stay open, in ms.")
    producer_id: int = int64(default=-1, about="Producer id that the producer has; -1 if it is new.")
    producer_epoch: int = int16(default=-1, about="Producer epoch that the producer has; -1 if it is new.")
    origin: ClientOrigin = nested(ClientOrigin, about="Client's broker and connection.")
    recovers: bool = boolean(
        "0+",
        tag=0,
        about="Whether the client can ask for the next epoch of a producer id that it already has (KIP-360).",
    )


@data()
class AddToTransactionResult(CommandResult):
    """Result of AddToTransaction: the number of the transaction that the partitions are part of."""

    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str = string(about="Explanation for people.")
    number: int = int32(default=-1, about="Number of the transaction; -1 if refused.")


@data()
class AddToTransaction(Command[AddToTransactionResult]):
    """Command of a writer that is about to write to these partitions. The first such command begins the transaction."""

    transactional_id: str = string(about="Transactional id of the transaction.")
    producer_id: int = int64(default=-1, about="Producer id of the writer.")
    producer_epoch: int = int16(default=-1, about="Producer epoch of the writer.")
    topics: list[WriterPartitions] = array(
        WriterPartitions, about="Partitions that the writer will write to, by topic."
    )
    origin: ClientOrigin = nested(ClientOrigin, about="Client's broker and connection.")


@data()
class ChosenWriter(Message):
    """A writer of the transaction, by producer id and epoch, whose records are to be committed."""

    producer_id: int = int64(about="Producer id that the writer got when it joined.")
    producer_epoch: int = int16(about="Producer epoch that the writer got when it joined.")


@data()
class EndTransactionResult(CommandResult):
    """Result of EndTransaction: the decided outcome, commit or abort. Readers see the end once the transaction of this
    number is complete."""

    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str = string(about="Explanation for people.")
    producer_id: int = int64(default=-1, about="Producer id for the next transaction.")
    producer_epoch: int = int16(default=-1, about="Producer epoch for the next transaction.")
    number: int = int32(default=-1, about="Number of the transaction.")
    was_committed: bool = boolean(
        about="Whether the application version had been committed before, so that this transaction was aborted "
        "instead."
    )
    commit_index: int = int64(default=-1, about="Commit index of the decision; -1 if refused.")


@data()
class EndTransaction(Command[EndTransactionResult]):
    """Command to commit or abort a transaction, decided at once for all partitions."""

    transactional_id: str = string(about="Transactional id of the transaction.")
    producer_id: int = int64(default=-1, about="Producer id of the owner.")
    producer_epoch: int = int16(default=-1, about="Producer epoch of the owner.")
    commits: bool = boolean(about="True to commit, false to abort.")
    bumps_epoch: bool = boolean(about="Whether the client takes up the next epoch (KIP-890).")
    writers: list[ChosenWriter] = array(
        ChosenWriter,
        about="Writers whose records are committed besides the owner's; the records of all other writers are "
        "aborted.",
    )
    number: int = int32(default=-1, about="Number of the transaction; -1: the newest.")
    app_version: int = int64(
        default=-1, about="Application version to store with the commit, above the last one; -1 for none."
    )
    origin: ClientOrigin = nested(ClientOrigin, about="Client's broker and connection.")


@data()
class FindOrBeginResult(CommandResult):
    """Result of FindOrBegin: producer id and epoch of the transaction's owner."""

    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str = string(about="Explanation for people.")
    producer_id: int = int64(default=-1, about="Producer id; -1 if refused, or committed before.")
    producer_epoch: int = int16(default=-1, about="Producer epoch; -1 if refused, or committed before.")
    number: int = int32(default=-1, about="Number of the transaction; -1 if refused, or committed before.")
    was_committed: bool = boolean(
        about="Whether the application version had been committed before, so that no transaction was begun."
    )


@data()
class FindOrBegin(Command[FindOrBeginResult]):
    """Command of one of many writers that share a transaction without an owner. The first command begins the
    transaction, later ones find it."""

    transactional_id: str = string(about="Transactional id, not empty.")
    app_version: int = int64(
        default=-1,
        about="Application version of the job; nothing begins if it or a later one was committed; -1: none.",
    )
    timeout_ms: int = int32(about="Time that the transaction may stay open after it was last found, in ms.")
    now_ms: int = int64(default=-1, about="Time by the clock of the broker that asks, in ms since 1970.")


@data()
class JoinTransactionResult(CommandResult):
    """Result of JoinTransaction: a producer id and epoch that no other writer has in this transaction."""

    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str = string(about="Explanation for people.")
    producer_id: int = int64(default=-1, about="Producer id; -1 if refused.")
    producer_epoch: int = int16(default=-1, about="Producer epoch; -1 if refused.")


@data()
class JoinTransaction(Command[JoinTransactionResult]):
    """Command of another process that is to write in an open transaction."""

    transactional_id: str = string(about="Transactional id of the transaction.")
    producer_id: int = int64(default=-1, about="Producer id of the owner, from the token.")
    producer_epoch: int = int16(default=-1, about="Producer epoch of the owner, from the token.")
    number: int = int32(default=-1, about="Number of the transaction, from the token.")


@data()
class WrittenMarker(Message):
    """A transaction marker that a partition's leader has written for one writer of a transaction."""

    producer_id: int = int64(about="Producer id of the writer.")
    number: int = int32(about="Number of the transaction.")


@data()
class WrittenMarkers(Message):
    """Transaction markers in one partition that are below its high watermark."""

    topic_id: bytes = uuid(about="Id of the topic.")
    partition: int = int32(about="Partition index.")
    leader_epoch: int = int32(about="Leader epoch in which the markers were written.")
    writers: list[WrittenMarker] = array(WrittenMarker, about="Writers whose markers were written.")


@data()
class ReportMarkers(Command[PlainResult]):
    """Command of a broker that has written transaction markers into partitions that it leads."""

    broker_id: int = int32(about="Id of the broker that leads.")
    broker_epoch: int = int64(about="Epoch of the broker's registration.")
    partitions: list[WrittenMarkers] = array(WrittenMarkers, about="Markers that were written, by partition.")


@data()
class OpenTransaction(Message):
    """A transaction of a transactional id, by its number."""

    transactional_id: str = string(about="Transactional id.")
    number: int = int32(about="Number of the transaction.")


@data()
class ExpireTransactions(Command[PlainResult]):
    """Command of the quorum's leader to abort transactions that have been open for longer than their timeout."""

    transactions: list[OpenTransaction] = array(
        OpenTransaction, about="Transactions whose time was over when the leader looked."
    )


@data()
class ForgetTransactionalIds(Command[PlainResult]):
    """Command of the quorum's leader to forget transactional ids that have not been used for long."""

    transactions: list[OpenTransaction] = array(
        OpenTransaction, about="Transactional ids, each with its last transaction."
    )
    unused_since_ms: int = int64(
        default=-1,
        about="Time in ms since 1970; an id whose client has spoken later, by its broker's clock, is kept.",
    )


@data()
class AbortTransaction(Command[PlainResult]):
    """Command of an operator to end a transaction, whichever producer owns it; that producer is fenced."""

    transactional_id: str = string(about="Transactional id of the transaction.")
    number: int = int32(default=-1, about="Number of the transaction; -1: the newest.")


@data()
class DeleteTransactionalId(Command[PlainResult]):
    """Command of an operator to forget a transactional id, and the application version that it may have."""

    transactional_id: str = string(about="Transactional id.")


@data()
class VerifyTransaction(Command[PlainResult]):
    """Command that changes nothing: its answer proves that the sender knows every decision made before it asked."""

    broker_id: int = int32(about="Id of the broker that asks.")
    broker_epoch: int = int64(about="Epoch of the broker's registration.")

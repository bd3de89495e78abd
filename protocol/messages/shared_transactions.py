"""BeginTransaction (20000), JoinTransaction (20001), CommitTransaction (20002): one transaction with many writers.

APIs of Ottla's own, under keys that Kafka does not use; Kafka's clients ignore them in ApiVersions. The owner of a
transactional id begins a transaction and gets a token. Any process that has the token may write in the transaction,
under its own producer id. The owner decides whose records count. Any broker answers.

Some transactions have no owner from the start, as among the tasks of a job of which any may be the first. Then each
task asks without a producer id: the first request begins the transaction and later requests find it. All get the
owner's producer id and epoch (BeginTransaction 1).
"""

from __future__ import annotations

from ..wire.schema import (
    Message,
    Request,
    array,
    boolean,
    data,
    int16,
    int32,
    int64,
    request,
    response,
    string,
)


@response(20000, "0-1", flexible="0+")
class BeginTransactionResponse(Message):
    """Answer to BeginTransactionRequest."""

    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(
        default=None, nullable="0+", about="Explanation for people; null without one."
    )
    number: int = int32(default=-1, about="Number of the transaction; -1 if refused.")
    token: str = string(about="Token for the other writers of the transaction: text without blanks.")
    producer_id: int = int64(versions="1+", default=-1, about="Producer id of the owner.")
    producer_epoch: int = int16(versions="1+", default=-1, about="Producer epoch of the owner.")
    was_committed: bool = boolean(
        versions="1+",
        about="Whether the application version had been committed before, so that no transaction was begun.",
    )


@request(20000, "0-1", flexible="0+", response=BeginTransactionResponse)
class BeginTransactionRequest(Request[BeginTransactionResponse]):
    """Request to begin a transaction that other writers can join.

    While the transaction is open, a repeated request gets the same answer. Without a producer id this holds for a
    request of any client.
    """

    transactional_id: str = string(about="Transactional id of the transaction.")
    producer_id: int = int64(
        default=-1,
        about="Producer id from InitProducerId; -1: the first request without one begins the transaction (from "
        "version 1 on).",
    )
    producer_epoch: int = int16(default=-1, about="Producer epoch from InitProducerId; -1 likewise.")
    app_version: int = int64(
        versions="1+",
        default=-1,
        about="Without a producer id: application version that the commit will carry; -1 for none.",
    )
    timeout_ms: int = int32(
        versions="1+",
        default=-1,
        about="Without a producer id: time that the transaction may stay open after it was last found, in ms.",
    )


@response(20001, "0", flexible="0+")
class JoinTransactionResponse(Message):
    """Answer to JoinTransactionRequest: the producer id and epoch of the writer, whose sequences begin at 0."""

    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(
        default=None, nullable="0+", about="Explanation for people; null without one."
    )
    transactional_id: str = string(
        about="Transactional id of the transaction; the writer's Produce requests have to name it."
    )
    producer_id: int = int64(default=-1, about="Producer id of the writer; -1 if refused.")
    producer_epoch: int = int16(default=-1, about="Producer epoch of the writer; -1 if refused.")
    number: int = int32(default=-1, about="Number of the transaction; -1 if refused.")


@request(20001, "0", flexible="0+", response=JoinTransactionResponse)
class JoinTransactionRequest(Request[JoinTransactionResponse]):
    """Request to become a writer in an open transaction. Each request makes another writer."""

    token: str = string(about="Token from the owner of the transaction.")


@response(20002, "0", flexible="0+")
class CommitTransactionResponse(Message):
    """Answer to CommitTransactionRequest, sent when all readers see the end of the transaction."""

    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(
        default=None, nullable="0+", about="Explanation for people; null without one."
    )
    producer_id: int = int64(default=-1, about="Producer id for the owner's next transaction.")
    producer_epoch: int = int16(default=-1, about="Producer epoch for the owner's next transaction.")
    was_committed: bool = boolean(
        about="Whether the application version had been committed before, so that this transaction was aborted "
        "instead."
    )
    commit_index: int = int64(
        default=-1, about="Position of the decision in the order of all decisions; -1: nothing was decided."
    )


@data()
class CommittedWriter(Message):
    """A writer that joined the transaction, and whose records are to be committed."""

    producer_id: int = int64(about="Producer id that the writer got when it joined.")
    producer_epoch: int = int16(about="Producer epoch that the writer got when it joined.")


@request(20002, "0", flexible="0+", response=CommitTransactionResponse)
class CommitTransactionRequest(Request[CommitTransactionResponse]):
    """Request to decide a transaction, for its owner and for all writers that joined it, at once."""

    transactional_id: str = string(about="Transactional id of the transaction.")
    producer_id: int = int64(default=-1, about="Producer id of the owner.")
    producer_epoch: int = int16(default=-1, about="Producer epoch of the owner.")
    committed: bool = boolean(about="True to commit; false to abort the records of all writers.")
    number: int = int32(default=-1, about="Number of the transaction; -1: the newest.")
    writers: list[CommittedWriter] = array(
        CommittedWriter,
        about="Writers whose records count besides the owner's; the records of all other writers are aborted.",
    )
    app_version: int = int64(
        default=-1, about="Application version to store with the commit, above the last one; -1 for none."
    )

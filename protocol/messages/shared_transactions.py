"""BeginTransaction (20000), JoinTransaction (20001), CommitTransaction (20002): one transaction, many writers.

APIs of Ottla's own, under keys that Kafka does not use: Kafka's clients pass over them in ApiVersions. The owner of a
transactional id begins a transaction and gets a token; whoever is given the token may write in the transaction, under a
producer id of its own; the owner decides whose records count. Any broker answers.

Where nobody is the owner from the start, as among the tasks of a job of which any may be the first, whoever asks
without a producer id begins the transaction or finds it, and gets what its owner has (BeginTransaction 1).
"""

from __future__ import annotations

from ..schema import Message, Request, array, boolean, data, int16, int32, int64, request, response, string


@response(20000, "0-1", flexible="0+")
class BeginTransactionResponse(Message):
    """Answer to BeginTransactionRequest."""

    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(
        default=None, nullable="0+", about="Explanation for people; null without one."
    )
    number: int = int32(default=-1, about="Of the transaction; -1 if refused.")
    token: str = string(about="For those who shall write in it too: text without blanks.")
    producer_id: int = int64(versions="1+", default=-1, about="The owner's.")
    producer_epoch: int = int16(versions="1+", default=-1, about="The owner's.")
    was_committed: bool = boolean(
        versions="1+", about="The application version had been committed before: nothing was begun."
    )


@request(20000, "0-1", flexible="0+", response=BeginTransactionResponse)
class BeginTransactionRequest(Request[BeginTransactionResponse]):
    """Begin a transaction that others can join. Asked again while it is open, the answer is the same; without a
    producer id also if it is somebody else who asks.
    """

    transactional_id: str = string(about="Whose transaction.")
    producer_id: int = int64(
        default=-1, about="As InitProducerId gave it; -1 for whoever asks first to begin it (from 1 on)."
    )
    producer_epoch: int = int16(default=-1, about="Likewise.")
    app_version: int = int64(
        versions="1+", default=-1, about="Without a producer id: what the commit will carry; -1 for none."
    )
    timeout_ms: int = int32(
        versions="1+",
        default=-1,
        about="Without a producer id: how long it may stay open after it was last found.",
    )


@response(20001, "0", flexible="0+")
class JoinTransactionResponse(Message):
    """Answer to JoinTransactionRequest: what the writer writes under, with sequences from 0."""

    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(
        default=None, nullable="0+", about="Explanation for people; null without one."
    )
    transactional_id: str = string(about="Whose transaction; Produce requests have to name it.")
    producer_id: int = int64(default=-1, about="The writer's own; -1 if refused.")
    producer_epoch: int = int16(default=-1, about="The writer's own; -1 if refused.")
    number: int = int32(default=-1, about="Of the transaction; -1 if refused.")


@request(20001, "0", flexible="0+", response=JoinTransactionResponse)
class JoinTransactionRequest(Request[JoinTransactionResponse]):
    """Become a writer in a transaction that is open. Each request makes another writer."""

    token: str = string(about="From who began it.")


@response(20002, "0", flexible="0+")
class CommitTransactionResponse(Message):
    """Answer to CommitTransactionRequest, once all readers see the end of the transaction."""

    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(
        default=None, nullable="0+", about="Explanation for people; null without one."
    )
    producer_id: int = int64(default=-1, about="To go on with.")
    producer_epoch: int = int16(default=-1, about="To go on with.")
    was_committed: bool = boolean(
        about="The application version had been committed before: this transaction was aborted instead."
    )
    commit_index: int = int64(
        default=-1, about="The place of the decision in the order of all decisions; -1: nothing was decided."
    )


@data()
class CommittedWriter(Message):
    """One of the `writers` of CommitTransactionRequest."""

    producer_id: int = int64(about="As it joined.")
    producer_epoch: int = int16(about="As it joined.")


@request(20002, "0", flexible="0+", response=CommitTransactionResponse)
class CommitTransactionRequest(Request[CommitTransactionResponse]):
    """Decide a transaction for its owner and for all who joined it, at once."""

    transactional_id: str = string(about="Whose transaction.")
    producer_id: int = int64(default=-1, about="The owner's.")
    producer_epoch: int = int16(default=-1, about="The owner's.")
    committed: bool = boolean(about="Or it is aborted, whoever wrote.")
    number: int = int32(default=-1, about="Which transaction is meant; -1: the newest.")
    writers: list[CommittedWriter] = array(
        CommittedWriter, about="Whose records count beside the owner's; all others are aborted."
    )
    app_version: int = int64(
        default=-1, about="To remember with the commit, above the last one; -1 for none."
    )

"""DescribeTransactions (65) and ListTransactions (66): transactions as shown to operators (KIP-664)."""

from __future__ import annotations

from ..wire.schema import Message, Request, array, data, int16, int32, int64, request, response, string


@data()
class DescribedTransactionTopic(Message):
    """Partitions of one topic in a transaction."""

    topic: str = string(about="Name of the topic.")
    partitions: list[int] = array(int32, about="Partition indexes.")


@data()
class DescribedTransaction(Message):
    """The newest transaction of a transactional id."""

    error_code: int = int16(about="Error code, 0 for success.")
    transactional_id: str = string(about="Transactional id of the producer.")
    transaction_state: str = string(about="State of the newest transaction, for example Ongoing.")
    transaction_timeout_ms: int = int32(about="Time after which an open transaction is aborted, in ms.")
    transaction_start_time_ms: int = int64(
        about="Time at which the transaction began, in ms since 1970; -1 for none."
    )
    producer_id: int = int64(about="Producer id that the transactional id has now.")
    producer_epoch: int = int16(about="Producer epoch.")
    topics: list[DescribedTransactionTopic] = array(
        DescribedTransactionTopic, about="Partitions of the transaction that have no marker yet, by topic."
    )
    app_version: int = int64(
        "0+",
        tag=10000,
        default=-1,
        about="Ottla's own: application version of the last commit that named one; -1 for none.",
    )


@response(65, "0", flexible="0+")
class DescribeTransactionsResponse(Message):
    """Answer to DescribeTransactionsRequest."""

    throttle_time_ms: int = int32(about="How long a quota delayed the request, in ms.")
    transaction_states: list[DescribedTransaction] = array(
        DescribedTransaction, about="Transactions that were asked for."
    )


@request(65, "0", flexible="0+", response=DescribeTransactionsResponse)
class DescribeTransactionsRequest(Request[DescribeTransactionsResponse]):
    """Request to describe the transactions of transactional ids."""

    transactional_ids: list[str] = array(string, about="Transactional ids; empty for none.")


@data()
class ListedTransaction(Message):
    """A transactional id with the state of its newest transaction."""

    transactional_id: str = string(about="Transactional id of the producer.")
    producer_id: int = int64(about="Producer id that the transactional id has now.")
    transaction_state: str = string(about="State of the newest transaction, for example Ongoing.")


@response(66, "0-2", flexible="0+")
class ListTransactionsResponse(Message):
    """Answer to ListTransactionsRequest."""

    throttle_time_ms: int = int32(about="How long a quota delayed the request, in ms.")
    error_code: int = int16(about="Error code, 0 for success.")
    unknown_state_filters: list[str] = array(string, about="Members of `state_filters` that are no states.")
    transaction_states: list[ListedTransaction] = array(ListedTransaction, about="Transactions found.")


@request(66, "0-2", flexible="0+", response=ListTransactionsResponse)
class ListTransactionsRequest(Request[ListTransactionsResponse]):
    """Request for the transactions that pass all filters: states, producer ids, age."""

    state_filters: list[str] = array(string, about="States wanted; empty for all.")
    producer_id_filters: list[int] = array(int64, about="Producer ids wanted; empty for all.")
    duration_filter: int = int64(
        "1+",
        default=-1,
        about="Time in ms for which a transaction must have been open, at least; negative for all (KIP-994).",
    )
    transactional_id_pattern: str | None = string(
        "2+",
        nullable="2+",
        default=None,
        about="Regular expression for transactional ids; null or empty for all (KIP-1152).",
    )

"""InitProducerId (22): ids for idempotent and transactional producers.

Version 5 is the newest that Kafka 4.4 calls stable. Kafka reserves version 6, for two-phase commit (KIP-939), for
tests.
"""

from __future__ import annotations

from ..wire.schema import Message, Request, boolean, int16, int32, int64, request, response, string


@response(22, "0-6", flexible="2+")
class InitProducerIdResponse(Message):
    """Answer to InitProducerIdRequest."""

    throttle_time_ms: int = int32(ignorable=True, about="How long a quota delayed the request, in ms.")
    error_code: int = int16(about="Error code, 0 for success.")
    producer_id: int = int64(default=-1, about="Producer id; -1 for none.")
    producer_epoch: int = int16(about="Producer epoch; -1 for none.")
    ongoing_txn_producer_id: int = int64(
        "6+", default=-1, about="Producer id of the prepared transaction; -1 for none."
    )
    ongoing_txn_producer_epoch: int = int16(
        "6+", default=-1, about="Producer epoch of the prepared transaction; -1 for none."
    )
    app_version: int = int64(
        "2+",
        tag=10000,
        default=-1,
        ignorable=True,
        about="Not in Kafka: last application version that was committed under the transactional id; -1 for none.",
    )


@request(22, "0-6", flexible="2+", response=InitProducerIdResponse)
class InitProducerIdRequest(Request[InitProducerIdResponse]):
    """Request for a producer id and epoch. A transactional id's earlier producer is fenced by it."""

    transactional_id: str | None = string(
        nullable="0+", about="Transactional id of the producer; null without transactions."
    )
    transaction_timeout_ms: int = int32(about="Time after which an open transaction is aborted, in ms.")
    producer_id: int = int64("3+", default=-1, about="Producer id; -1 for none.")
    producer_epoch: int = int16("3+", default=-1, about="Producer epoch; -1 for none.")
    enable_2pc: bool = boolean("6+", about="Whether the client takes part in two-phase commit (KIP-939).")
    keep_prepared_txn: bool = boolean("6+", about="Whether to keep a prepared transaction (KIP-939).")

"""Outcomes of operations, derived from their answers."""

from __future__ import annotations

from enum import Enum
from typing import Final

ALL_IN_SYNC: Final = -1
"""acks=all."""


class Outcome(Enum):
    """The outcome of an operation: done, certainly not done, or unknown."""

    OK = "ok"
    FAIL = "fail"
    INFO = "info"


REFUSED_FOR_WHAT_IT_IS: Final = frozenset(
    {
        "MESSAGE_TOO_LARGE",
        "RECORD_LIST_TOO_LARGE",
        "INVALID_RECORD",
        "INVALID_REQUIRED_ACKS",
        "INVALID_TOPIC_EXCEPTION",
        "UNSUPPORTED_COMPRESSION_TYPE",
        "UNSUPPORTED_FOR_MESSAGE_FORMAT",
        "UNSUPPORTED_VERSION",
        "TOPIC_AUTHORIZATION_FAILED",
        "CLUSTER_AUTHORIZATION_FAILED",
        "GROUP_AUTHORIZATION_FAILED",
        "OFFSET_METADATA_TOO_LARGE",
        "INVALID_COMMIT_OFFSET_SIZE",
        "INVALID_GROUP_ID",
    }
)
"""Errors that every attempt of the same request would get: the operation was certainly not done, however often it was
sent."""
REFUSED_THIS_TIME: Final = frozenset(
    {
        "INVALID_TIMESTAMP",
        "NOT_ENOUGH_REPLICAS",
        "CORRUPT_MESSAGE",
        "OUT_OF_ORDER_SEQUENCE_NUMBER",
        "INVALID_PRODUCER_EPOCH",
        "PRODUCER_FENCED",
        "UNKNOWN_PRODUCER_ID",
        "INVALID_PRODUCER_ID_MAPPING",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "REBALANCE_IN_PROGRESS",
        "ILLEGAL_GENERATION",
        "UNKNOWN_MEMBER_ID",
        "FENCED_INSTANCE_ID",
        "FENCED_MEMBER_EPOCH",
        "STALE_MEMBER_EPOCH",
        "INVALID_REQUEST",
        "INVALID_TXN_STATE",
        "TRANSACTION_ABORTABLE",
    }
)
"""Errors of an attempt that was not done. An earlier attempt without an answer may have succeeded."""


def outcome_of(
    error_name: str | None, acks: int = ALL_IN_SYNC, idempotent: bool = True, *, tried_before: bool = False
) -> Outcome:
    """Return the outcome of an operation that was answered with this error (None or "NONE": without an error).

    `tried_before`: the same operation may have been sent earlier without an answer, as by clients that retry on their
    own.

    Every error that may occur after the append gives INFO: KAFKA-13574 (NOT_LEADER_OR_FOLLOWER from a broker that had
    appended), NOT_ENOUGH_REPLICAS_AFTER_APPEND, timeouts, broken connections, failed disks, and names that no broker
    sends. With acks=0 there is no answer, so the outcome is unknown.
    """
    if acks == 0:
        return Outcome.INFO
    if error_name is None or error_name == "NONE":
        return Outcome.OK
    if error_name == "DUPLICATE_SEQUENCE_NUMBER" and idempotent:
        return Outcome.OK
    if error_name in REFUSED_FOR_WHAT_IT_IS:
        return Outcome.FAIL
    if error_name in REFUSED_THIS_TIME and not tried_before:
        return Outcome.FAIL
    return Outcome.INFO

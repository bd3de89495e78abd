"""Requests for the states of share-partitions and their answers, made from changes and read back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages import share_group_state as wire
from ....protocol.messages.find_coordinator import SharePartition
from ....protocol.messages.share_state_records import UNKNOWN_COUNT
from ....protocol.wire.schema import Message, Request
from ...coordinated_log.transactional_producer import TransactionalProducer
from .records import read_batches, wire_batches
from .shard import Outcome
from .stored_state import (
    NO_STATE,
    Change,
    Delete,
    Initialize,
    PendingState,
    Read,
    StoredShareState,
    Summarize,
    Write,
)

KeyedChange = tuple[SharePartition, Change]


@dataclass(frozen=True, slots=True)
class StateApi:
    """An API of share states: its messages, and the conversions of one share-partition's fields."""

    request: type[Request[Any]]
    version: int
    """The version that brokers send."""
    topic: type[Message]
    """An element of the request for a topic."""
    row: Callable[[int, Any], Message]
    """A function that returns the element of the request for a partition and a change."""
    change: Callable[[Any], Change]
    """The inverse of `row`."""
    topic_result: type[Message]
    """An element of the response for a topic."""
    result: type[Message]
    """An element of the response for a partition."""
    values: Callable[[StoredShareState], Mapping[str, object]] = lambda _stored: {}
    """A function that returns the fields of a successful result."""
    stored: Callable[[Any], StoredShareState] = lambda _row: NO_STATE
    """A function that reads the state from a successful result."""


def _read_write(row: wire.WrittenState) -> Write:
    return Write(
        row.state_epoch,
        row.leader_epoch,
        row.start_offset,
        row.delivery_complete_count,
        _checked_batches(row.state_batches),
        TransactionalProducer(row.transactional_id, row.producer_id, row.producer_epoch)
        if row.transactional_id
        else None,
    )


def _written_row(partition: int, change: Write) -> wire.WrittenState:
    row = wire.WrittenState(
        partition=partition,
        state_epoch=change.state_epoch,
        leader_epoch=change.leader_epoch,
        start_offset=change.start_offset,
        delivery_complete_count=change.delivery_complete_count,
        state_batches=wire_batches(change.batches),
    )
    if change.writer is not None:
        row.transactional_id, row.producer_id, row.producer_epoch = change.writer
    return row


def _checked_batches(batches: Sequence[Any]) -> Any:
    try:
        return read_batches(batches)
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"a state batch has an unknown state: {error}") from None


INITIALIZE: Final = StateApi(
    wire.InitializeShareGroupStateRequest,
    0,
    wire.InitialTopicStates,
    lambda partition, change: wire.InitialState(
        partition=partition, state_epoch=change.state_epoch, start_offset=change.start_offset
    ),
    lambda row: Initialize(row.state_epoch, row.start_offset),
    wire.TopicStateResults,
    wire.StateResult,
)
READ: Final = StateApi(
    wire.ReadShareGroupStateRequest,
    0,
    wire.WantedTopicStates,
    lambda partition, change: wire.WantedState(partition=partition, leader_epoch=change.leader_epoch),
    lambda row: Read(row.leader_epoch),
    wire.ReadTopicStates,
    wire.ReadState,
    lambda stored: {
        "state_epoch": stored.state_epoch,
        "start_offset": stored.start_offset,
        "state_batches": wire_batches(stored.batches),
        "pending": [
            wire.PendingState(
                producer_id=state.producer_id,
                producer_epoch=state.producer_epoch,
                state_batches=wire_batches(state.batches),
            )
            for state in stored.pending
        ],
    },
    lambda row: StoredShareState(
        row.state_epoch,
        0,
        row.start_offset,
        UNKNOWN_COUNT,
        read_batches(row.state_batches),
        tuple(
            PendingState(state.producer_id, state.producer_epoch, read_batches(state.state_batches))
            for state in row.pending
        ),
    ),
)
WRITE: Final = StateApi(
    wire.WriteShareGroupStateRequest,
    1,
    wire.WrittenTopicStates,
    _written_row,
    _read_write,
    wire.TopicStateResults,
    wire.StateResult,
)
DELETE: Final = StateApi(
    wire.DeleteShareGroupStateRequest,
    0,
    wire.DeletedTopicStates,
    lambda partition, _change: wire.DeletedState(partition=partition),
    lambda _row: Delete(),
    wire.TopicStateResults,
    wire.StateResult,
)
SUMMARIZE: Final = StateApi(
    wire.ReadShareGroupStateSummaryRequest,
    1,
    wire.WantedTopicStates,
    lambda partition, change: wire.WantedState(partition=partition, leader_epoch=change.leader_epoch),
    lambda row: Summarize(row.leader_epoch),
    wire.TopicStateSummaries,
    wire.StateSummary,
    lambda stored: {
        "state_epoch": stored.state_epoch,
        "leader_epoch": stored.leader_epoch,
        "start_offset": stored.start_offset,
        "delivery_complete_count": stored.delivery_complete_count,
    },
    lambda row: StoredShareState(
        row.state_epoch, row.leader_epoch, row.start_offset, row.delivery_complete_count
    ),
)
API_OF: Final[Mapping[type[Change], StateApi]] = {
    Initialize: INITIALIZE,
    Read: READ,
    Write: WRITE,
    Delete: DELETE,
    Summarize: SUMMARIZE,
}
"""The API that makes each change."""


def changes_of(api: StateApi, request: Any) -> list[KeyedChange]:
    """Return the changes that a request asks for, in order. Raises KafkaError INVALID_REQUEST for an unknown state."""
    return [
        (SharePartition(request.group_id, bytes(topic.topic_id), row.partition), api.change(row))
        for topic in request.topics
        for row in topic.partitions
    ]


def response_of(api: StateApi, changes: Sequence[KeyedChange], outcomes: Sequence[Outcome]) -> Any:
    """Return the response with the outcome of each change."""
    results = zip(changes, outcomes, strict=True)
    return api.request.response(
        results=[
            api.topic_result(
                topic_id=topic_id,
                partitions=[_result(api, key.partition, outcome) for (key, _), outcome in group],
            )
            for topic_id, group in groupby(results, lambda result: result[0][0].topic_id)
        ]
    )


def _result(api: StateApi, partition: int, outcome: Outcome) -> Message:
    if isinstance(outcome, KafkaError):
        return api.result(partition=partition, error_code=outcome.code, error_message=outcome.message)
    return api.result(partition=partition, **api.values(outcome))


def request_of(api: StateApi, changes: Sequence[KeyedChange]) -> Request[Any]:
    """Return the request for changes of one group, in order."""
    return api.request(
        group_id=changes[0][0].group_id,
        topics=[
            api.topic(topic_id=topic_id, partitions=[api.row(key.partition, change) for key, change in group])
            for topic_id, group in groupby(changes, lambda keyed: keyed[0].topic_id)
        ],
    )


def outcomes_of(api: StateApi, response: Any) -> Iterator[Outcome]:
    """Yield the outcomes in a response, in the order of the changes. Raises ValueError for an unknown state or
    error."""
    for topic in response.results:
        for row in topic.partitions:
            if row.error_code != ErrorCode.NONE:
                yield KafkaError(ErrorCode(row.error_code), row.error_message or "")
            else:
                yield api.stored(row)

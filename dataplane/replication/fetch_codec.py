"""Fetches between brokers in the encoding of Fetch version 17: topic ids, broker epochs, sessions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeVar, cast

from ...protocol.errors import ErrorCode
from ...protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from ...protocol.messages.headers import decode_response, encode_request
from ..log import LogSlice
from .fetch_values import FetchPosition, FollowerFetch, PartitionAnswer, PartitionKey, SessionAnswer
from .follower import UNDEFINED_EPOCH, EpochEnd

VERSION: Final = 17
_EMPTY = b""
_READ_BYTES_MAX = 32 * 1024
_T = TypeVar("_T")


def _by_topic(pairs: Iterable[tuple[bytes, _T]]) -> dict[bytes, list[_T]]:
    grouped: dict[bytes, list[_T]] = {}
    for topic_id, value in pairs:
        grouped.setdefault(topic_id, []).append(value)
    return grouped


def encode_fetch(fetch: FollowerFetch, max_wait_ms: int, correlation_id: int) -> bytes:
    """A whole request frame."""
    positions = _by_topic(
        (
            position.key[0],
            FetchPartition(
                partition=position.key[1],
                current_leader_epoch=position.leader_epoch,
                fetch_offset=position.fetch_offset,
                last_fetched_epoch=position.last_fetched_epoch,
                log_start_offset=position.log_start_offset,
                partition_max_bytes=position.max_bytes,
            ),
        )
        for position in fetch.positions
    )
    message = FetchRequest(
        replica_state=ReplicaState(replica_id=fetch.broker_id, replica_epoch=fetch.broker_epoch),
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=fetch.max_bytes,
        session_id=fetch.session_id,
        session_epoch=fetch.session_epoch,
        topics=[FetchTopic(topic_id=topic_id, partitions=found) for topic_id, found in positions.items()],
        forgotten_topics_data=[
            ForgottenTopic(topic_id=topic_id, partitions=indexes)
            for topic_id, indexes in _by_topic(fetch.forgotten).items()
        ],
    )
    return encode_request(message, VERSION, correlation_id, f"broker-{fetch.broker_id}")


def fetch_of(message: FetchRequest, broker_id: int, broker_epoch: int) -> FollowerFetch:
    """What a follower asks; the message has topic ids (version 13 or above)."""
    return FollowerFetch(
        broker_id,
        broker_epoch,
        message.session_id,
        message.session_epoch,
        [
            FetchPosition(
                (topic.topic_id, part.partition),
                part.current_leader_epoch,
                part.fetch_offset,
                part.last_fetched_epoch,
                part.log_start_offset,
                part.partition_max_bytes,
            )
            for topic in message.topics
            for part in topic.partitions
        ],
        [(topic.topic_id, index) for topic in message.forgotten_topics_data for index in topic.partitions],
        message.max_bytes,
    )


def to_send(records: LogSlice | memoryview) -> memoryview:
    """Records as the codec and the connection take them. A small slice is read here: one send then carries
    the whole answer, where a file in the middle makes three, and as many wake-ups of the receiver."""
    if isinstance(records, LogSlice) and records.size <= _READ_BYTES_MAX:
        try:
            return memoryview(records.read())
        except OSError:
            # The log is offline now, as the next fetch is told; the other partitions go on.
            return memoryview(_EMPTY)
        finally:
            records.release()
    # The codec leaves slices of files out, to be sent as parts of their own.
    return cast(memoryview, records)


def response_of(answer: SessionAnswer) -> FetchResponse:
    """The answer as a message whose records are slices of logs."""
    grouped = _by_topic((part.key[0], _partition_data(part)) for part in answer.partitions)
    return FetchResponse(
        error_code=answer.error,
        session_id=answer.session_id,
        responses=[
            FetchableTopicResponse(topic_id=topic_id, partitions=found) for topic_id, found in grouped.items()
        ],
    )


def _partition_data(part: PartitionAnswer) -> PartitionData:
    data = PartitionData(
        partition_index=part.key[1],
        error_code=part.error,
        high_watermark=part.high_watermark,
        last_stable_offset=part.high_watermark,
        log_start_offset=part.log_start_offset,
        aborted_transactions=None,
        records=_EMPTY if part.records is None else to_send(part.records),
    )
    if part.diverging is not None:
        data.diverging_epoch = EpochEndOffset(
            epoch=part.diverging.epoch, end_offset=part.diverging.end_offset
        )
    return data


def decode_answer(frame: memoryview) -> tuple[int, SessionAnswer]:
    """Correlation id and answer; records are views of `frame`. MalformedMessage if it is none."""
    correlation_id, message = decode_response(FetchRequest, frame, VERSION)
    return correlation_id, SessionAnswer(
        message.session_id,
        [
            _partition_answer((topic.topic_id, part.partition_index), part)
            for topic in message.responses
            for part in topic.partitions
        ],
        ErrorCode.of(message.error_code),
    )


def _partition_answer(key: PartitionKey, part: PartitionData) -> PartitionAnswer:
    diverging = part.diverging_epoch
    return PartitionAnswer(
        key,
        ErrorCode.of(part.error_code),
        part.high_watermark,
        part.log_start_offset,
        None if diverging.epoch == UNDEFINED_EPOCH else EpochEnd(diverging.epoch, diverging.end_offset),
        part.records,  # type: ignore[arg-type]  # decoded from a memoryview, so a memoryview
    )

"""Conversion between fetch values and Fetch messages of version 17, with topic ids, broker epochs and sessions.

Messages of the usual form are encoded by `fetch_layout`.
"""

from __future__ import annotations

from typing import Any, cast

from ...protocol.errors import ErrorCode
from ...protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from ...protocol.messages.headers import decode_response
from ...protocol.wire.codec import encode_parts
from ..log import LogSlice
from ..log.leader_epochs import UNDEFINED_EPOCH
from .fetch_layout import VERSION, by_topic, read_answer, write_answer
from .fetch_values import FetchPosition, FollowerFetch, PartitionAnswer, PartitionKey, SessionAnswer
from .roles.follower import EpochEnd

_EMPTY = b""
_READ_BYTES_MAX = 32 * 1024


def fetch_of(message: FetchRequest, broker_id: int, broker_epoch: int) -> FollowerFetch:
    """Return the follower's fetch from a message with topic ids (version 13 or above)."""
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


def to_send(records: LogSlice | memoryview) -> LogSlice | memoryview:
    """Return the records of one partition in a form that the codec and the connection accept.

    A small slice is read into memory, so that one `send` carries the whole answer. A file slice in the middle would
    take three, and wake the receiver three times.
    """
    if isinstance(records, LogSlice) and records.size <= _READ_BYTES_MAX:
        try:
            return memoryview(records.read())
        except OSError:
            # The log is offline now, and the next fetch is answered so. The other partitions of the answer are not
            # affected.
            return memoryview(_EMPTY)
        finally:
            records.release()
    return records


def encode_answer(answer: SessionAnswer, version: int) -> list[Any]:
    """Return the body of the Fetch response for `answer`, in parts to be sent in order: encoded bytes, and slices of
    log files with the records.
    """
    if version != VERSION or not all(part.is_usual for part in answer.partitions):
        return encode_parts(response_of(answer), version)
    return write_answer(
        answer, [None if part.records is None else to_send(part.records) for part in answer.partitions]
    )


def response_of(answer: SessionAnswer) -> FetchResponse:
    """Return the leader's answer as a FetchResponse message, whose records are slices of log files."""
    grouped = by_topic((part.key[0], _partition_data(part)) for part in answer.partitions)
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
        # The codec leaves file slices out of its buffers; they are sent as separate parts.
        records=_EMPTY if part.records is None else cast(memoryview, to_send(part.records)),
        goes_on_at=part.goes_on_at,
    )
    if part.diverging is not None:
        data.diverging_epoch = EpochEndOffset(
            epoch=part.diverging.epoch, end_offset=part.diverging.end_offset
        )
    return data


def decode_answer(frame: memoryview) -> tuple[int, SessionAnswer]:
    """Return the correlation id and the leader's answer from the frame of a Fetch response. The records of the answer
    are views of `frame`. Raises MalformedMessage if the frame is invalid.
    """
    return read_answer(frame) or decode_any_answer(frame)


def decode_any_answer(frame: memoryview) -> tuple[int, SessionAnswer]:
    """Decode the frame of a Fetch response like `decode_answer`, with the generic codec: it reads any valid
    response.
    """
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
        part.goes_on_at,
    )

"""Every API can answer an error, in each of its versions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.dataplane.server import HandlerTable
from ottla.dataplane.server.handler import Handler
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.protocol.messages.groups import DescribeGroupsRequest
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.protocol.wire.codec import decode, encode
from ottla.protocol.wire.schema import Message
from tests.test_docs import handler_classes

from .error_requests import messages

TABLE = HandlerTable(*(object.__new__(each) for each in handler_classes()))
WITHOUT_ERRORS = {
    ("AuthenticateNode", 0): "the response has no field for an error: the connection is closed",
    ("DescribeLogDirs", 1): "as in Kafka, no folders stand for an error before version 3",
    ("DescribeLogDirs", 2): "as in Kafka, no folders stand for an error before version 3",
}


def name_of(handler: Handler) -> str:
    return handler.request_class.__name__.removesuffix("Request")


def codes(answer: Message) -> Iterator[int]:
    """All error codes of an answer and of its elements."""
    for field in answer.schema.fields:
        value: Any = getattr(answer, field.name)
        if field.name in ("error_code", "partition_error_code"):
            yield value
        if field.element is not None and field.element.struct is not None:
            for element in value or ():
                yield from codes(element)


def handler_of(request_class: type[Message]) -> Handler:
    handler = TABLE.get(request_class.api_key)
    assert handler is not None
    return handler


@pytest.mark.parametrize("handler", TABLE, ids=name_of)
@given(data=st.data(), text=st.none() | st.text(max_size=5))
@settings(max_examples=20)
def test_an_error_is_answered_with_its_code(handler: Handler, data: st.DataObject, text: str | None) -> None:
    error = KafkaError(ErrorCode.POLICY_VIOLATION, text)
    for version in range(handler.min_version, handler.max_version + 1):
        request = data.draw(messages(handler.request_class, version))
        request = decode(handler.request_class, encode(request, version), version)
        answer = handler.error_answer(request, error, version)
        found = set()
        if answer is not None:
            response = decode(handler.request_class.response, encode(answer, version), version)
            found = set(codes(response)) - {ErrorCode.NONE}
        assert found == (set() if (name_of(handler), version) in WITHOUT_ERRORS else {error.code})


def test_elements_repeat_what_identifies_them_and_nothing_else() -> None:
    partition = DeleteRecordsPartition(partition_index=3, offset=7)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="a", partitions=[partition])])
    answer: Any = handler_of(DeleteRecordsRequest).error_answer(
        request, KafkaError(ErrorCode.REQUEST_TIMED_OUT), 2
    )
    (topic,) = answer.topics
    (row,) = topic.partitions
    assert (topic.name, row.partition_index, row.low_watermark) == ("a", 3, -1)
    assert row.error_code == ErrorCode.REQUEST_TIMED_OUT


def test_values_of_the_request_become_elements_without_the_fields_of_later_versions() -> None:
    handler = handler_of(DescribeGroupsRequest)
    request = DescribeGroupsRequest(groups=["a", "b"])
    error = KafkaError(ErrorCode.POLICY_VIOLATION, "too many")
    for version, text in ((5, None), (6, "too many")):
        answer: Any = handler.error_answer(request, error, version)
        assert [(group.group_id, group.error_message) for group in answer.groups] == [
            ("a", text),
            ("b", text),
        ]


def test_an_error_at_the_top_is_not_repeated_in_elements() -> None:
    handler = handler_of(OffsetDeleteRequest)
    topic = OffsetDeleteRequestTopic(name="a", partitions=[OffsetDeleteRequestPartition(partition_index=3)])
    request = OffsetDeleteRequest(group_id="a", topics=[topic])
    answer: Any = handler.error_answer(request, KafkaError(ErrorCode.NOT_COORDINATOR), 0)
    assert (answer.error_code, answer.topics) == (ErrorCode.NOT_COORDINATOR, [])


def test_a_fetch_has_its_error_at_the_top_or_else_in_each_partition() -> None:
    topic = FetchTopic(topic="a", partitions=[FetchPartition(partition=3)])
    request, handler = FetchRequest(topics=[topic]), handler_of(FetchRequest)
    fault = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
    assert handler.error_answer(request, fault, 7) == FetchResponse(error_code=fault.code)
    for error, version in ((fault, 6), (KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED), 18)):
        answer: Any = handler.error_answer(request, error, version)
        assert answer.error_code == ErrorCode.NONE
        (result,) = answer.responses
        (partition,) = result.partitions
        assert (result.topic, partition.partition_index, partition.high_watermark) == ("a", 3, -1)
        assert partition.error_code == error.code

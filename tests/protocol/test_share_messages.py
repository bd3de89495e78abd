"""Requests of share groups: records that are not copied, bounds, and fields that older versions lack."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.protocol.messages.groups import DeletableGroupResult, DeleteGroupsResponse
from ottla.protocol.messages.share_fetch import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    AcknowledgeType,
    AcquiredRecords,
    AcquireMode,
    FetchPartition,
    FetchTopic,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from ottla.protocol.messages.share_group_offsets import (
    DescribedGroup,
    DescribedOffset,
    DescribedTopic,
    DescribeShareGroupOffsetsResponse,
)
from ottla.protocol.messages.share_group_state import (
    ReadShareGroupStateSummaryResponse,
    StateSummary,
    TopicStateSummaries,
    WriteShareGroupStateRequest,
    WrittenState,
    WrittenTopicStates,
)
from ottla.protocol.messages.share_groups import ShareGroupHeartbeatRequest
from ottla.protocol.wire.codec import (
    MalformedMessage,
    UnsupportedField,
    decode,
    decode_at_most,
    encode,
    encode_parts,
)
from ottla.protocol.wire.primitives import write_uvarint
from ottla.protocol.wire.schema import Message

MEMORY_BYTES_MAX = 200_000


class Slice:
    """Records in a file: only their size is known here."""

    def __init__(self, size: int) -> None:
        self.size = size


@pytest.mark.parametrize("version", [1, 2])
@given(sizes=st.lists(st.integers(0, 300), max_size=5))
@settings(max_examples=10)
def test_records_of_a_file_are_parts_of_their_own(version: int, sizes: list[int]) -> None:
    def response(whole: bool) -> ShareFetchResponse:
        partitions = [
            PartitionData(
                partition_index=index,
                records=bytes(size) if whole else Slice(size),  # type: ignore[arg-type]
                acquired_records=[AcquiredRecords(first_offset=0, last_offset=size, delivery_count=1)],
            )
            for index, size in enumerate(sizes)
        ]
        return ShareFetchResponse(responses=[ShareFetchableTopicResponse(partitions=partitions)])

    parts = encode_parts(response(whole=False), version)
    assert [part.size for part in parts if isinstance(part, Slice)] == sizes
    filled = b"".join(bytes(part.size) if isinstance(part, Slice) else part for part in parts)
    assert filled == encode(response(whole=True), version)


def test_a_client_reads_records_as_a_view_of_the_answer() -> None:
    buffer = bytearray(
        encode(
            ShareFetchResponse(
                responses=[ShareFetchableTopicResponse(partitions=[PartitionData(records=b"abc")])]
            ),
            2,
        )
    )
    records = decode(ShareFetchResponse, memoryview(buffer), 2).responses[0].partitions[0].records
    assert isinstance(records, memoryview)
    assert records.obj is buffer
    assert bytes(records) == b"abc"


def test_an_answer_without_records_has_empty_records() -> None:
    """Clients of Kafka 4.4 fail at null records: "non-nullable field records was serialized as null"."""
    empty = ShareFetchResponse(responses=[ShareFetchableTopicResponse(partitions=[PartitionData()])])
    encoded = encode(empty, 2)
    # Written by the classes of Kafka 4.4 from the same values.
    assert encoded.hex() == (
        "000000000000000000000002000000000000000000000000000000000200000000000000000000000000000000000000010100000100"
    )
    assert decode(ShareFetchResponse, encoded, 2) == empty
    null = empty.responses[0].partitions[0]
    null.records = None  # type: ignore[assignment]
    with pytest.raises(UnsupportedField):
        encode(empty, 2)


ACCEPTED = [AcknowledgementBatch(first_offset=0, last_offset=9, acknowledge_types=[AcknowledgeType.ACCEPT])]
STATES = [WrittenTopicStates(partitions=[WrittenState(delivery_complete_count=5)])]
SUMMARIES = [TopicStateSummaries(partitions=[StateSummary(delivery_complete_count=5)])]
LAGS = [DescribedGroup(topics=[DescribedTopic(partitions=[DescribedOffset(lag=5)])])]


@pytest.mark.parametrize(
    ("message", "older"),
    [
        (ShareFetchRequest(share_acquire_mode=AcquireMode.RECORD_LIMIT), 1),
        (ShareAcknowledgeResponse(acquisition_lock_timeout_ms=30_000), 1),
        (WriteShareGroupStateRequest(topics=STATES), 0),
        (ReadShareGroupStateSummaryResponse(results=SUMMARIES), 0),
        (DescribeShareGroupOffsetsResponse(groups=LAGS), 0),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_older_version_leaves_a_new_field_out(message: Message, older: int) -> None:
    read = decode(type(message), encode(message, older), older)
    assert read != message
    assert decode(type(message), encode(message, older + 1), older + 1) == message


@pytest.mark.parametrize("cls", [ShareFetchRequest, ShareAcknowledgeRequest])
def test_a_renewal_is_not_sent_to_a_broker_that_would_read_an_unknown_type(cls: type[Message]) -> None:
    renewal = cls(is_renew_ack=True)
    assert decode(cls, encode(renewal, 2), 2) == renewal
    with pytest.raises(UnsupportedField, match="is_renew_ack"):
        encode(renewal, 1)


def uvarint(value: int) -> bytes:
    out = bytearray()
    write_uvarint(out, value)
    return bytes(out)


ACKNOWLEDGED = encode(
    ShareAcknowledgeRequest(
        group_id="g",
        member_id="m",
        topics=[AcknowledgeTopic(partitions=[AcknowledgePartition(acknowledgement_batches=ACCEPTED)])],
    ),
    2,
)
BEFORE_TYPES = ACKNOWLEDGED[: ACKNOWLEDGED.rindex(b"\x02\x01")]
"""The request up to the array of acknowledgement types."""


@pytest.mark.parametrize("elements", [1_000_001, 1 << 31, (1 << 32) - 2])
def test_acknowledgement_types_beyond_a_limit_are_refused_before_memory_is_taken(elements: int) -> None:
    payload = BEFORE_TYPES + uvarint(elements + 1) + bytes(2_000_000)
    tracemalloc.start()
    try:
        with pytest.raises(MalformedMessage):
            decode(ShareAcknowledgeRequest, payload, 2)
        assert tracemalloc.get_traced_memory()[1] < MEMORY_BYTES_MAX
    finally:
        tracemalloc.stop()


def test_many_ranges_of_one_offset_can_be_bounded() -> None:
    """A request with 100,000 ranges is legal on the wire; a broker bounds the number before it reads them."""
    ranges = [
        AcknowledgementBatch(first_offset=offset, last_offset=offset, acknowledge_types=[1])
        for offset in range(100_000)
    ]
    request = ShareFetchRequest(
        topics=[FetchTopic(partitions=[FetchPartition(acknowledgement_batches=ranges)])]
    )
    encoded = encode(request, 2)
    assert decode_at_most(ShareFetchRequest, encoded, 2, 10_000) is None
    read = decode_at_most(ShareFetchRequest, encoded, 2, 300_000)
    assert read is not None
    assert read.topics[0].partitions[0].acknowledgement_batches[-1].last_offset == 99_999


def test_a_heartbeat_tells_no_topics_from_unchanged_topics() -> None:
    unchanged, none = ShareGroupHeartbeatRequest(), ShareGroupHeartbeatRequest(subscribed_topic_names=[])
    assert decode(ShareGroupHeartbeatRequest, encode(unchanged, 1), 1).subscribed_topic_names is None
    assert decode(ShareGroupHeartbeatRequest, encode(none, 1), 1).subscribed_topic_names == []


# Written by the classes of Kafka 4.4 from the same values.
@pytest.mark.parametrize(
    ("version", "written"),
    [(2, "00000007030267008600026800000000"), (3, "000000070302670086036e6f0002680000000000")],
)
def test_the_deletion_of_a_group_explains_its_failure_from_version_3_on(version: int, written: str) -> None:
    failed = DeletableGroupResult(group_id="g", error_code=134, error_message="no")
    response = DeleteGroupsResponse(throttle_time_ms=7, results=[failed, DeletableGroupResult(group_id="h")])
    assert encode(response, version).hex() == written
    read = decode(DeleteGroupsResponse, bytes.fromhex(written), version)
    assert read.results[0].error_message == ("no" if version == 3 else None)
    assert (read == response) == (version == 3)

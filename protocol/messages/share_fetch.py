"""ShareFetch (78), ShareAcknowledge (79): records that members of a share group take and acknowledge (KIP-932)."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from ..wire.schema import (
    Message,
    Request,
    array,
    boolean,
    data,
    int8,
    int16,
    int32,
    int64,
    nested,
    records_,
    request,
    response,
    string,
    uuid,
)

OPEN_SESSION_EPOCH: Final = 0
CLOSE_SESSION_EPOCH: Final = -1
"""Epochs of a request that opens a share session, and of a request that closes it."""


class AcknowledgeType(IntEnum):
    """Kafka's numbers of acknowledgements. GAP is for offsets without a record, such as offsets that compaction
    removed. RENEW prolongs the lock of a record (KIP-1222)."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class AcquireMode(IntEnum):
    """Kafka's numbers of ways to apply `max_records` (KIP-1206). BATCH_OPTIMIZED may exceed the number up to the end of
    a batch, RECORD_LIMIT never exceeds it."""

    BATCH_OPTIMIZED = 0
    RECORD_LIMIT = 1


@data()
class LeaderIdAndEpoch(Message):
    """The current leader of a partition and its leader epoch, sent to a client that asked another broker."""

    leader_id: int = int32(about="Broker that leads the partition; -1 unknown.")
    leader_epoch: int = int32(about="Leader epoch.")


@data()
class NodeEndpoint(Message):
    """Address of a broker that leads a partition, sent to a client that asked another broker."""

    node_id: int = int32(about="Broker id.")
    host: str = string(about="Host name or address.")
    port: int = int32(about="TCP port.")
    rack: str | None = string(nullable="0+", default=None, about="Rack of the broker; null without one.")


@data()
class AcknowledgementBatch(Message):
    """A range of offsets with their acknowledgements."""

    first_offset: int = int64(about="First offset of the range.")
    last_offset: int = int64(about="Last offset of the range.")
    acknowledge_types: list[int] = array(
        int8, about="An AcknowledgeType for each offset of the range, or a single type for all offsets."
    )
    delay_ms: int = int64(
        tag=10000,
        default=0,
        about="Not in Kafka: time in ms for which nobody gets the released records; 0 for none. All types of the range "
        "are RELEASE then.",
    )


@data()
class AcquiredRecords(Message):
    """A range of offsets that the member has acquired, with the number of their deliveries."""

    first_offset: int = int64(about="First offset of the range.")
    last_offset: int = int64(about="Last offset of the range.")
    delivery_count: int = int16(about="Number of deliveries of each of these records, with this delivery.")


@data()
class PartitionData(Message):
    """Fetched records of one partition, with the acquired offsets or errors."""

    partition_index: int = int32(about="Partition index.")
    error_code: int = int16(about="Error code of the fetch, 0 for success.")
    error_message: str | None = string(
        nullable="0+", default=None, about="Explanation for people; null without one."
    )
    acknowledge_error_code: int = int16(about="Error code of the acknowledgements, 0 for success.")
    acknowledge_error_message: str | None = string(
        nullable="0+",
        default=None,
        about="Explanation of the acknowledgements' error for people; null without one.",
    )
    current_leader: LeaderIdAndEpoch = nested(
        LeaderIdAndEpoch, about="Leader of the partition, if the client asked the wrong broker."
    )
    records: bytes | memoryview = records_(
        default=b"",
        about="Record batches of format v2, which may contain more offsets than were acquired; empty for none, since "
        "Kafka's clients refuse null.",
    )
    acquired_records: list[AcquiredRecords] = array(
        AcquiredRecords, about="Offsets that the member has acquired."
    )


@data()
class ShareFetchableTopicResponse(Message):
    """Records of one topic, by partition."""

    topic_id: bytes = uuid(about="Id of the topic.")
    partitions: list[PartitionData] = array(PartitionData, about="Partitions that were fetched.")


@response(78, "1-2", flexible="0+")
class ShareFetchResponse(Message):
    """Answer to ShareFetchRequest."""

    throttle_time_ms: int = int32(ignorable=True, about="How long a quota delayed the request, in ms.")
    error_code: int = int16(ignorable=True, about="Error code, 0 for success.")
    error_message: str | None = string(
        nullable="0+", default=None, about="Explanation for people; null without one."
    )
    acquisition_lock_timeout_ms: int = int32(about="Time for which acquired records are locked, in ms.")
    responses: list[ShareFetchableTopicResponse] = array(
        ShareFetchableTopicResponse, about="Results, by topic."
    )
    node_endpoints: list[NodeEndpoint] = array(
        NodeEndpoint, about="Addresses of the leaders named in `current_leader`."
    )


@data()
class FetchPartition(Message):
    """A partition to take records of, with acknowledgements of earlier records."""

    partition_index: int = int32(about="Partition index.")
    acknowledgement_batches: list[AcknowledgementBatch] = array(
        AcknowledgementBatch, about="Acknowledgements of records of the partition."
    )


@data()
class FetchTopic(Message):
    """Partitions of one topic to take records of."""

    topic_id: bytes = uuid(about="Id of the topic.")
    partitions: list[FetchPartition] = array(FetchPartition, about="Partitions, with acknowledgements.")


@data()
class ForgottenTopic(Message):
    """Partitions of one topic to drop from the share session."""

    topic_id: bytes = uuid(about="Id of the topic.")
    partitions: list[int] = array(int32, about="Partitions to drop.")


@request(78, "1-2", flexible="0+", response=ShareFetchResponse)
class ShareFetchRequest(Request[ShareFetchResponse]):
    """Request to take records for a share group, and to acknowledge records that were taken before."""

    group_id: str | None = string(nullable="0+", default=None, about="Id of the group.")
    member_id: str | None = string(nullable="0+", about="Id of the member.")
    share_session_epoch: int = int32(
        about="Epoch of the share session; 0 opens a session, -1 closes it, otherwise one more each time."
    )
    max_wait_ms: int = int32(about="Time to wait for `min_bytes`, in ms.")
    min_bytes: int = int32(about="Number of bytes after which the broker answers without waiting further.")
    max_bytes: int = int32(
        default=2147483647,
        about="Bytes of the answer over all partitions; the first batch may exceed the limit.",
    )
    max_records: int = int32(about="Number of records to take, applied as `share_acquire_mode` says.")
    batch_size: int = int32(about="Number of records that each range of acquired records should have.")
    share_acquire_mode: int = int8("2+", ignorable=True, about="Use of `max_records`, an AcquireMode.")
    is_renew_ack: bool = boolean("2+", about="Whether the acknowledgements contain the type RENEW.")
    topics: list[FetchTopic] = array(FetchTopic, about="Partitions to take records of, by topic.")
    forgotten_topics_data: list[ForgottenTopic] = array(
        ForgottenTopic, about="Partitions to drop from the share session."
    )


@data()
class AcknowledgedPartition(Message):
    """Result of the acknowledgements of one partition."""

    partition_index: int = int32(about="Partition index.")
    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(
        nullable="0+", default=None, about="Explanation for people; null without one."
    )
    current_leader: LeaderIdAndEpoch = nested(
        LeaderIdAndEpoch, about="Leader of the partition, if the client asked the wrong broker."
    )


@data()
class ShareAcknowledgeTopicResponse(Message):
    """Results of the acknowledgements of one topic, by partition."""

    topic_id: bytes = uuid(about="Id of the topic.")
    partitions: list[AcknowledgedPartition] = array(AcknowledgedPartition, about="Results, by partition.")


@response(79, "1-2", flexible="0+")
class ShareAcknowledgeResponse(Message):
    """Answer to ShareAcknowledgeRequest."""

    throttle_time_ms: int = int32(ignorable=True, about="How long a quota delayed the request, in ms.")
    error_code: int = int16(ignorable=True, about="Error code, 0 for success.")
    error_message: str | None = string(
        nullable="0+", default=None, about="Explanation for people; null without one."
    )
    acquisition_lock_timeout_ms: int = int32(
        "2+", ignorable=True, about="Time for which renewed records are locked, in ms."
    )
    responses: list[ShareAcknowledgeTopicResponse] = array(
        ShareAcknowledgeTopicResponse, about="Results, by topic."
    )
    node_endpoints: list[NodeEndpoint] = array(
        NodeEndpoint, about="Addresses of the leaders named in `current_leader`."
    )


@data()
class AcknowledgePartition(Message):
    """Acknowledgements of records of one partition."""

    partition_index: int = int32(about="Partition index.")
    acknowledgement_batches: list[AcknowledgementBatch] = array(
        AcknowledgementBatch, about="Acknowledgements of records of the partition."
    )


@data()
class AcknowledgeTopic(Message):
    """Acknowledgements of records of one topic, by partition."""

    topic_id: bytes = uuid(about="Id of the topic.")
    partitions: list[AcknowledgePartition] = array(AcknowledgePartition, about="Partitions of the topic.")


@request(79, "1-2", flexible="0+", response=ShareAcknowledgeResponse)
class ShareAcknowledgeRequest(Request[ShareAcknowledgeResponse]):
    """Request to acknowledge records that a member of a share group has taken."""

    group_id: str | None = string(nullable="0+", default=None, about="Id of the group.")
    member_id: str | None = string(nullable="0+", about="Id of the member.")
    share_session_epoch: int = int32(
        about="Epoch of the share session; -1 closes the session, otherwise one more each time."
    )
    is_renew_ack: bool = boolean("2+", about="Whether the acknowledgements contain the type RENEW.")
    topics: list[AcknowledgeTopic] = array(AcknowledgeTopic, about="Acknowledgements, by topic.")

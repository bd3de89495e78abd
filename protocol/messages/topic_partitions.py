"""DescribeTopicPartitions (75): topics page by page, with their eligible leader replicas (KIP-966)."""

from __future__ import annotations

from ..wire.schema import (
    Message,
    Request,
    array,
    boolean,
    data,
    int16,
    int32,
    nested,
    request,
    response,
    string,
    uuid,
)


@data()
class DescribeTopicPartitionsResponsePartition(Message):
    """A partition with its leader and replicas."""

    error_code: int = int16(about="Error code, 0 for success.")
    partition_index: int = int32(about="Partition index.")
    leader_id: int = int32(about="Broker that leads the partition; -1 for none.")
    leader_epoch: int = int32(default=-1, ignorable=True, about="Leader epoch; -1 unknown.")
    replica_nodes: list[int] = array(int32, about="Brokers with a replica, preferred leader first.")
    isr_nodes: list[int] = array(int32, about="Brokers in the ISR.")
    eligible_leader_replicas: list[int] | None = array(
        int32,
        default=None,
        nullable="0+",
        about="Replicas out of the ISR that have everything committed; null for none (KIP-966).",
    )
    last_known_elr: list[int] | None = array(
        int32,
        default=None,
        nullable="0+",
        about="Eligible leader replicas that the partition had last, before it lost all of them; null for none.",
    )
    offline_replicas: list[int] = array(
        int32, ignorable=True, about="Brokers whose replica is not available."
    )


@data()
class DescribeTopicPartitionsResponseTopic(Message):
    """A topic with its partitions."""

    error_code: int = int16(about="Error code, 0 for success.")
    name: str | None = string(nullable="0+", about="Name of the topic.")
    topic_id: bytes = uuid(ignorable=True, about="Id of the topic; zero unknown.")
    is_internal: bool = boolean(ignorable=True, about="Whether the topic is internal to the cluster.")
    partitions: list[DescribeTopicPartitionsResponsePartition] = array(
        DescribeTopicPartitionsResponsePartition, about="Partition indexes."
    )
    topic_authorized_operations: int = int32(
        default=-2147483648,
        about="Bit field of the operations that the client may perform; the lowest number if not asked for.",
    )


@data()
class Cursor(Message):
    """Position in the list of all topics' partitions, at which the next page begins."""

    topic_name: str = string(about="Name of the topic.")
    partition_index: int = int32(about="Partition index.")


@response(75, "0", flexible="0+")
class DescribeTopicPartitionsResponse(Message):
    """Answer to DescribeTopicPartitionsRequest."""

    throttle_time_ms: int = int32(ignorable=True, about="How long a quota delayed the request, in ms.")
    topics: list[DescribeTopicPartitionsResponseTopic] = array(
        DescribeTopicPartitionsResponseTopic, about="Topics on this page."
    )
    next_cursor: Cursor | None = nested(
        Cursor,
        default=None,
        nullable="0+",
        about="First partition of the next page; null after the last page.",
    )


@data()
class TopicRequest(Message):
    """A topic to describe."""

    name: str = string(about="Name of the topic.")


@request(75, "0", flexible="0+", response=DescribeTopicPartitionsResponse)
class DescribeTopicPartitionsRequest(Request[DescribeTopicPartitionsResponse]):
    """Request for partitions, from a cursor on."""

    topics: list[TopicRequest] = array(TopicRequest, about="Topics to describe.")
    response_partition_limit: int = int32(default=2000, about="Highest number of partitions in the answer.")
    cursor: Cursor | None = nested(
        Cursor, default=None, nullable="0+", about="First partition to describe; null for the beginning."
    )

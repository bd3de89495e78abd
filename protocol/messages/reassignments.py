"""AlterPartitionReassignments (45), ListPartitionReassignments (46): moves of replicas between brokers (KIP-455)."""

from __future__ import annotations

from ..wire.schema import Message, Request, array, boolean, data, int16, int32, request, response, string


@data()
class ReassignablePartitionResponse(Message):
    """Result of the reassignment of one partition."""

    partition_index: int = int32(about="Partition index.")
    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(
        nullable="0+", default=None, about="Explanation for people; null without one."
    )


@data()
class ReassignableTopicResponse(Message):
    """Results for one topic."""

    name: str = string(about="Name of the topic.")
    partitions: list[ReassignablePartitionResponse] = array(
        ReassignablePartitionResponse, about="Partition indexes."
    )


@response(45, "0-1", flexible="0+")
class AlterPartitionReassignmentsResponse(Message):
    """Answer to AlterPartitionReassignmentsRequest."""

    throttle_time_ms: int = int32(about="How long a quota delayed the request, in ms.")
    allow_replication_factor_change: bool = boolean(
        "1+", default=True, ignorable=True, about="Whether the number of replicas may change."
    )
    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(
        nullable="0+", default=None, about="Explanation for people; null without one."
    )
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse, about="Results, by topic.")


@data()
class ReassignablePartition(Message):
    """A partition and the replicas that it shall have."""

    partition_index: int = int32(about="Partition index.")
    replicas: list[int] | None = array(
        int32,
        default=None,
        nullable="0+",
        about="Broker ids of the new replicas, preferred leader first; null cancels the reassignment.",
    )


@data()
class ReassignableTopic(Message):
    """Partitions of one topic to move."""

    name: str = string(about="Name of the topic.")
    partitions: list[ReassignablePartition] = array(ReassignablePartition, about="Partition indexes.")


@request(45, "0-1", flexible="0+", response=AlterPartitionReassignmentsResponse)
class AlterPartitionReassignmentsRequest(Request[AlterPartitionReassignmentsResponse]):
    """Request to begin, change or cancel reassignments of partitions."""

    timeout_ms: int = int32(default=60000, about="Time within which the broker has to answer, in ms.")
    allow_replication_factor_change: bool = boolean(
        "1+", default=True, about="Whether the number of replicas may change."
    )
    topics: list[ReassignableTopic] = array(ReassignableTopic, about="Partitions to move, by topic.")


@data()
class OngoingPartitionReassignment(Message):
    """A reassignment in progress."""

    partition_index: int = int32(about="Partition index.")
    replicas: list[int] = array(int32, about="Broker ids, preferred leader first.")
    adding_replicas: list[int] = array(int32, about="Replicas that are being added.")
    removing_replicas: list[int] = array(int32, about="Replicas that will be removed.")


@data()
class OngoingTopicReassignment(Message):
    """Reassignments in progress of one topic."""

    name: str = string(about="Name of the topic.")
    partitions: list[OngoingPartitionReassignment] = array(
        OngoingPartitionReassignment, about="Partition indexes."
    )


@response(46, "0", flexible="0+")
class ListPartitionReassignmentsResponse(Message):
    """Answer to ListPartitionReassignmentsRequest."""

    throttle_time_ms: int = int32(about="How long a quota delayed the request, in ms.")
    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(
        nullable="0+", default=None, about="Explanation for people; null without one."
    )
    topics: list[OngoingTopicReassignment] = array(
        OngoingTopicReassignment, about="Reassignments in progress, by topic."
    )


@data()
class ListPartitionReassignmentsTopics(Message):
    """Partitions of one topic to list."""

    name: str = string(about="Name of the topic.")
    partition_indexes: list[int] = array(int32, about="Partitions to show.")


@request(46, "0", flexible="0+", response=ListPartitionReassignmentsResponse)
class ListPartitionReassignmentsRequest(Request[ListPartitionReassignmentsResponse]):
    """Request for the reassignments in progress."""

    timeout_ms: int = int32(default=60000, about="Time within which the broker has to answer, in ms.")
    topics: list[ListPartitionReassignmentsTopics] | None = array(
        ListPartitionReassignmentsTopics,
        default=None,
        nullable="0+",
        about="Partitions to list, by topic; null for all.",
    )

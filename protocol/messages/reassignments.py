"""AlterPartitionReassignments (45), ListPartitionReassignments (46): move replicas (KIP-455)."""

from __future__ import annotations

from ..schema import Message, Request, array, boolean, data, int16, int32, request, response, string


@data()
class ReassignablePartitionResponse(Message):
    """One of the `partitions` of ReassignableTopicResponse."""

    partition_index: int = int32(about="Partition.")
    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(
        nullable="0+", default=None, about="Explanation for people; null without one."
    )


@data()
class ReassignableTopicResponse(Message):
    """One of the `responses` of AlterPartitionReassignmentsResponse."""

    name: str = string(about="Name of the topic.")
    partitions: list[ReassignablePartitionResponse] = array(
        ReassignablePartitionResponse, about="Partitions."
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
    """One of the `partitions` of ReassignableTopic."""

    partition_index: int = int32(about="Partition.")
    replicas: list[int] | None = array(
        int32,
        default=None,
        nullable="0+",
        about="Replicas wanted, preferred leader first; null cancels the move.",
    )


@data()
class ReassignableTopic(Message):
    """One of the `topics` of AlterPartitionReassignmentsRequest."""

    name: str = string(about="Name of the topic.")
    partitions: list[ReassignablePartition] = array(ReassignablePartition, about="Partitions.")


@request(45, "0-1", flexible="0+", response=AlterPartitionReassignmentsResponse)
class AlterPartitionReassignmentsRequest(Request[AlterPartitionReassignmentsResponse]):
    """Begin, change or cancel the moves of partitions."""

    timeout_ms: int = int32(default=60000, about="How long the answer may be waited for, in ms.")
    allow_replication_factor_change: bool = boolean(
        "1+", default=True, about="Whether the number of replicas may change."
    )
    topics: list[ReassignableTopic] = array(ReassignableTopic, about="Topics concerned.")


@data()
class OngoingPartitionReassignment(Message):
    """One of the `partitions` of OngoingTopicReassignment."""

    partition_index: int = int32(about="Partition.")
    replicas: list[int] = array(int32, about="Broker ids, preferred leader first.")
    adding_replicas: list[int] = array(int32, about="Replicas that are being added.")
    removing_replicas: list[int] = array(int32, about="Replicas that will be removed.")


@data()
class OngoingTopicReassignment(Message):
    """One of the `topics` of ListPartitionReassignmentsResponse."""

    name: str = string(about="Name of the topic.")
    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment, about="Partitions.")


@response(46, "0", flexible="0+")
class ListPartitionReassignmentsResponse(Message):
    """Answer to ListPartitionReassignmentsRequest."""

    throttle_time_ms: int = int32(about="How long a quota delayed the request, in ms.")
    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(
        nullable="0+", default=None, about="Explanation for people; null without one."
    )
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment, about="Topics concerned.")


@data()
class ListPartitionReassignmentsTopics(Message):
    """One of the `topics` of ListPartitionReassignmentsRequest."""

    name: str = string(about="Name of the topic.")
    partition_indexes: list[int] = array(int32, about="Partitions to show.")


@request(46, "0", flexible="0+", response=ListPartitionReassignmentsResponse)
class ListPartitionReassignmentsRequest(Request[ListPartitionReassignmentsResponse]):
    """Show the moves under way."""

    timeout_ms: int = int32(default=60000, about="How long the answer may be waited for, in ms.")
    topics: list[ListPartitionReassignmentsTopics] | None = array(
        ListPartitionReassignmentsTopics, default=None, nullable="0+", about="Topics to show; null for all."
    )

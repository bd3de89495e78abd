"""ElectLeaders (43): elections of preferred or unclean leaders (KIP-460)."""

from __future__ import annotations

from ..wire.schema import Message, Request, array, data, int8, int16, int32, request, response, string


@data()
class PartitionResult(Message):
    """Result of the election in one partition."""

    partition_id: int = int32(about="Partition index.")
    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(nullable="0+", about="Explanation for people; null without one.")


@data()
class ReplicaElectionResult(Message):
    """Results of the leader elections in the partitions of one topic."""

    topic: str = string(about="Name of the topic.")
    partition_result: list[PartitionResult] = array(PartitionResult, about="Results by partition.")


@response(43, "0-2", flexible="2+")
class ElectLeadersResponse(Message):
    """Answer to ElectLeadersRequest."""

    throttle_time_ms: int = int32(about="How long a quota delayed the request, in ms.")
    error_code: int = int16("1+", about="Error code, 0 for success.")
    replica_election_results: list[ReplicaElectionResult] = array(
        ReplicaElectionResult, about="Results by topic."
    )


@data()
class TopicPartitions(Message):
    """Partitions of one topic to elect leaders for."""

    topic: str = string(about="Name of the topic.")
    partitions: list[int] = array(int32, about="Partition indexes.")


@request(43, "0-2", flexible="2+", response=ElectLeadersResponse)
class ElectLeadersRequest(Request[ElectLeadersResponse]):
    """Request to elect leaders of the named partitions, or of all."""

    election_type: int = int8("1+", about="Type of the election, an ElectionType.")
    topic_partitions: list[TopicPartitions] | None = array(
        TopicPartitions, nullable="0+", about="Partitions to elect leaders for; null for all."
    )
    timeout_ms: int = int32(default=60000, about="Time within which the broker has to answer, in ms.")

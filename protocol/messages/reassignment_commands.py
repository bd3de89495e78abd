"""The command that moves replicas of partitions between brokers, and its result (KIP-455)."""

from __future__ import annotations

from ..wire.schema import Message, array, boolean, data, int16, int32, string
from .command import Command, CommandResult


@data()
class WantedReplicas(Message):
    """The new replicas of a partition."""

    partition: int = int32(about="Partition index.")
    replicas: list[int] | None = array(
        int32,
        nullable="0+",
        default=None,
        about="Broker ids, preferred leader first; null cancels the reassignment in progress.",
    )


@data()
class TopicReassignment(Message):
    """The partitions of a topic whose replicas are to move."""

    name: str = string(about="Name of the topic.")
    partitions: list[WantedReplicas] = array(WantedReplicas, about="Partitions with their new replicas.")


@data()
class ReassignedPartition(Message):
    """Result of the reassignment of one partition."""

    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str = string(about="Explanation for people.")


@data()
class AlterPartitionReassignmentsResult(CommandResult):
    """Results of AlterPartitionReassignments, one for each partition in the order of the command."""

    error_code: int = int16(about="Error code of the whole command, 0 for success.")
    error_message: str = string(about="Explanation for people.")
    partitions: list[ReassignedPartition] = array(
        ReassignedPartition, about="Results, in the order of the command, topic after topic."
    )


@data()
class AlterPartitionReassignments(Command[AlterPartitionReassignmentsResult]):
    """Command to begin, change or cancel reassignments, each partition independently of the others."""

    topics: list[TopicReassignment] = array(TopicReassignment, about="Partitions to move, by topic.")
    allow_replication_factor_change: bool = boolean(
        default=True, about="Whether the number of replicas may change."
    )

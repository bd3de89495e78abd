"""The command that moves replicas, and its result (KIP-455)."""

from __future__ import annotations

from ..schema import Message, array, boolean, data, int16, int32, string
from .command import Command, CommandResult


@data()
class WantedReplicas(Message):
    """Where one partition's replicas shall go."""

    partition: int = int32(about="Partition index.")
    replicas: list[int] | None = array(
        int32, nullable="0+", default=None, about="Preferred leader first; null cancels what is under way."
    )


@data()
class TopicReassignment(Message):
    """The partitions of one topic that shall move."""

    name: str = string(about="Topic.")
    partitions: list[WantedReplicas] = array(WantedReplicas, about="Partitions.")


@data()
class ReassignedPartition(Message):
    """How the change of one partition went."""

    error_code: int = int16(about="0 for success.")
    error_message: str = string(about="For people.")


@data()
class AlterPartitionReassignmentsResult(CommandResult):
    """One result per partition, in order."""

    error_code: int = int16(about="About the whole command; 0 for success.")
    error_message: str = string(about="For people.")
    partitions: list[ReassignedPartition] = array(
        ReassignedPartition, about="In the order of the command, topic after topic."
    )


@data()
class AlterPartitionReassignments(Command[AlterPartitionReassignmentsResult]):
    """Begin, change or cancel reassignments, each partition on its own."""

    topics: list[TopicReassignment] = array(TopicReassignment, about="Topics.")
    allow_replication_factor_change: bool = boolean(
        default=True, about="Whether the number of replicas may change."
    )

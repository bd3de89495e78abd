"""Commands about single partitions: their in-sync replicas, and elections of their leaders."""

from __future__ import annotations

from enum import IntEnum

from ..wire.schema import Message, array, data, int8, int16, int32, int64, string, uuid
from .command import Command, CommandResult, PlainResult


class ElectionType(IntEnum):
    """Kafka's election types."""

    PREFERRED = 0
    UNCLEAN = 1


@data()
class ReplicaLogEnd(Message):
    """Log end offset of one replica, and the leader epoch of its last records, from its broker's heartbeat."""

    topic_id: bytes = uuid(about="Id of the topic.")
    partition: int = int32(about="Partition index.")
    broker_id: int = int32(about="Broker id of the replica.")
    leader_epoch: int = int32(about="Leader epoch of its last batch.")
    log_end_offset: int = int64(about="Log end offset of the replica.")
    broker_epoch: int = int64(
        "0+",
        tag=0,
        default=-1,
        about="Epoch of the registration of the broker that reported it; -1 if unknown.",
    )


@data()
class IsrMember(Message):
    """A proposed member of an ISR, with the broker epoch that the leader knows (KIP-903)."""

    broker_id: int = int32(about="Broker id of the replica.")
    broker_epoch: int = int64(
        default=-1, about="Epoch of the registration that the replica's fetches named; -1 if unknown."
    )
    log_end_offset: int = int64(
        "0+", tag=0, default=-1, about="Log end offset of the replica that the leader knew; -1 if unknown."
    )


@data()
class AlterPartitionChange(Message):
    """A leader's new ISR, valid only if no other change was made to the partition meanwhile."""

    topic_id: bytes = uuid(about="Id of the topic.")
    partition: int = int32(about="Partition index.")
    leader_epoch: int = int32(about="Epoch of the leader.")
    partition_epoch: int = int32(about="Partition epoch of the state that is to be replaced.")
    new_isr: list[IsrMember] = array(IsrMember, about="The whole new ISR.")


@data()
class AlteredPartition(Message):
    """Result of the change of one partition's ISR, with the present state of the partition if the partition is
    known."""

    topic_id: bytes = uuid(about="Id of the topic.")
    partition: int = int32(about="Partition index.")
    error_code: int = int16(about="Error code, 0 for success.")
    leader: int = int32(default=-1, about="Broker id of the leader; -1 for none.")
    leader_epoch: int = int32(default=-1, about="Leader epoch.")
    isr: list[int] = array(int32, about="In-sync replicas.")
    partition_epoch: int = int32(default=-1, about="Partition epoch.")


@data()
class AlterPartitionResult(CommandResult):
    """Results of AlterPartition, one for each change in the order of the command."""

    error_code: int = int16(about="Error code of the whole command: STALE_BROKER_EPOCH.")
    error_message: str = string(about="Explanation for people.")
    partitions: list[AlteredPartition] = array(
        AlteredPartition, about="Results, in the order of the command."
    )


@data()
class AlterPartition(Command[AlterPartitionResult]):
    """Command of a broker to change the ISRs of partitions that it leads. Each change names the epochs that it builds
    on (compare-and-set)."""

    broker_id: int = int32(about="Id of the broker that leads.")
    broker_epoch: int = int64(about="Epoch of the broker's registration.")
    partitions: list[AlterPartitionChange] = array(AlterPartitionChange, about="Changes, by partition.")


@data()
class ElectionPartition(Message):
    """A partition whose leader is to be elected."""

    topic_id: bytes = uuid(about="Id of the topic.")
    partition: int = int32(about="Partition index.")


@data()
class ElectLastKnown(Command[PlainResult]):
    """Command to elect leaders from the last known members of partitions that have neither ISR nor ELR."""

    progress: list[ReplicaLogEnd] = array(
        ReplicaLogEnd, about="Log ends of all last known members of each partition that is to have a leader."
    )


@data()
class ElectedPartition(Message):
    """Result of the election of one partition's leader."""

    topic_id: bytes = uuid(about="Id of the topic.")
    partition: int = int32(about="Partition index.")
    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str = string(about="Explanation for people.")


@data()
class ElectLeadersResult(CommandResult):
    """Results of ElectLeaders, one for each partition. If all partitions were meant, only for partitions that needed an
    election."""

    error_code: int = int16(about="Error code of the whole command, 0 for success.")
    error_message: str = string(about="Explanation for people.")
    partitions: list[ElectedPartition] = array(ElectedPartition, about="Results, by partition.")


@data()
class ElectLeaders(Command[ElectLeadersResult]):
    """Command to elect preferred leaders, or any leader for partitions without one."""

    election_type: int = int8(about="Type of the election, an ElectionType.")
    partitions: list[ElectionPartition] | None = array(
        ElectionPartition, nullable="0+", default=None, about="Partitions; null: all."
    )
    progress: list[ReplicaLogEnd] = array(
        ReplicaLogEnd, about="Log ends of replicas, to elect the member that is furthest along."
    )

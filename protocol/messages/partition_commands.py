"""Commands about single partitions: their in-sync replicas, and elections of their leaders."""

from __future__ import annotations

from enum import IntEnum

from ..schema import Message, array, data, int8, int16, int32, int64, string, uuid
from .command import Command, CommandResult, PlainResult


class ElectionType(IntEnum):
    """Kafka's election types."""

    PREFERRED = 0
    UNCLEAN = 1


@data()
class ReplicaLogEnd(Message):
    """How far one replica's log reaches, as its heartbeats told."""

    topic_id: bytes = uuid(about="Topic.")
    partition: int = int32(about="Partition index.")
    broker_id: int = int32(about="The replica.")
    leader_epoch: int = int32(about="Leader epoch of its last batch.")
    log_end_offset: int = int64(about="Its log end offset.")
    broker_epoch: int = int64(
        "0+", tag=0, default=-1, about="Registration of the broker that told it; -1 if unknown."
    )


@data()
class IsrMember(Message):
    """A proposed member of an ISR (KIP-903)."""

    broker_id: int = int32(about="Replica.")
    broker_epoch: int = int64(default=-1, about="Registration that its fetches named; -1 if unknown.")
    log_end_offset: int = int64(
        "0+", tag=0, default=-1, about="Where its log ended, as the leader knew; -1 if it did not."
    )


@data()
class AlterPartitionChange(Message):
    """A leader's new ISR, valid only if nothing else has changed the partition."""

    topic_id: bytes = uuid(about="Topic.")
    partition: int = int32(about="Partition index.")
    leader_epoch: int = int32(about="The leader's.")
    partition_epoch: int = int32(about="Of the state that is to be replaced.")
    new_isr: list[IsrMember] = array(IsrMember, about="The whole new ISR.")


@data()
class AlteredPartition(Message):
    """How one change went, and the state there is now (if the partition is known)."""

    topic_id: bytes = uuid(about="Topic.")
    partition: int = int32(about="Partition index.")
    error_code: int = int16(about="0 for success.")
    leader: int = int32(default=-1, about="Leader.")
    leader_epoch: int = int32(default=-1, about="Leader epoch.")
    isr: list[int] = array(int32, about="In-sync replicas.")
    partition_epoch: int = int32(default=-1, about="Partition epoch.")


@data()
class AlterPartitionResult(CommandResult):
    """One result per change, in order."""

    error_code: int = int16(about="About the whole command: STALE_BROKER_EPOCH.")
    error_message: str = string(about="For people.")
    partitions: list[AlteredPartition] = array(AlteredPartition, about="In the order of the command.")


@data()
class AlterPartition(Command[AlterPartitionResult]):
    """A leader changes ISRs, by compare-and-set."""

    broker_id: int = int32(about="Who asks.")
    broker_epoch: int = int64(about="Its registration.")
    partitions: list[AlterPartitionChange] = array(AlterPartitionChange, about="Changes.")


@data()
class ElectionPartition(Message):
    """A partition to elect a leader for."""

    topic_id: bytes = uuid(about="Topic.")
    partition: int = int32(about="Partition index.")


@data()
class ElectLastKnown(Command[PlainResult]):
    """Elect leaders from the last known members of partitions that have neither ISR nor ELR."""

    progress: list[ReplicaLogEnd] = array(
        ReplicaLogEnd, about="Of all last known members of each partition that is to have a leader."
    )


@data()
class ElectedPartition(Message):
    """How one election went."""

    topic_id: bytes = uuid(about="Topic.")
    partition: int = int32(about="Partition index.")
    error_code: int = int16(about="0 for success.")
    error_message: str = string(about="For people.")


@data()
class ElectLeadersResult(CommandResult):
    """One result per partition; with null partitions, only of those that needed an election."""

    error_code: int = int16(about="About the whole command; 0 for success.")
    error_message: str = string(about="For people.")
    partitions: list[ElectedPartition] = array(ElectedPartition, about="Results.")


@data()
class ElectLeaders(Command[ElectLeadersResult]):
    """Elect preferred leaders, or any leader where there is none."""

    election_type: int = int8(about="An ElectionType.")
    partitions: list[ElectionPartition] | None = array(
        ElectionPartition, nullable="0+", default=None, about="Null: all partitions."
    )
    progress: list[ReplicaLogEnd] = array(ReplicaLogEnd, about="For choosing the member furthest along.")

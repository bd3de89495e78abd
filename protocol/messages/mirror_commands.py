"""Commands about mirrors: their phases, the topics that they copy, and faults that stop a copy."""

from __future__ import annotations

from ..wire.schema import Message, array, boolean, data, int8, int16, int32, int64, string, uuid
from .acl_commands import AclEntry
from .command import Command, CommandResult, PlainResult
from .mirror_records import MirroredAppVersion, MirroredOffset, MirrorOption, SourceEpoch
from .topic_commands import NewTopicConfig


@data()
class CreateMirror(Command[PlainResult]):
    """Command to begin to copy topics of another cluster."""

    name: str = string(about="Name of the mirror.")
    source_cluster_id: str = string(about="Id of the cluster that is copied.")
    bootstrap_servers: str = string(about="Addresses at which that cluster is first contacted.")
    topics: str = string(about="Regular expression of topics.")
    groups: str = string(about="Regular expression of groups; empty: none.")
    start: int = int64(
        default=-2,
        about="Offset at which copies begin: -2 the start, -1 the end, otherwise a time in ms since 1970.",
    )
    options: list[MirrorOption] = array(
        MirrorOption, about="Options of the connections to the source; secrets are encrypted."
    )
    is_checked_only: bool = boolean(about="Whether to validate only, without any change.")
    bandwidth: int = int64(
        "0+", tag=0, about="Bytes per second that each broker may fetch from the source; 0: no limit."
    )
    acls: bool = boolean("0+", tag=1, about="Whether the mirror copies the ACLs of these topics and groups.")
    awaits_cuts: bool = boolean(
        "0+", tag=2, about="Whether the source has reported a cut, and will report others."
    )


@data()
class AlterMirror(Command[PlainResult]):
    """Command to set the phase of a mirror: pause it, resume it, or promote its topics."""

    name: str = string(about="Name of the mirror.")
    phase: int = int8(about="1 active, 2 paused, 3 promoted.")


@data()
class ReconnectMirror(Command[PlainResult]):
    """Command to change the connections to the source: its addresses, or options such as a new or re-encrypted
    password."""

    name: str = string(about="Name of the mirror.")
    bootstrap_servers: str = string(
        about="Addresses at which the source is first contacted; empty: unchanged."
    )
    options: list[MirrorOption] = array(MirrorOption, about="All options of the connections from now on.")
    replaces: list[MirrorOption] | None = array(
        MirrorOption,
        nullable="0+",
        default=None,
        about="Options that the mirror must have now, otherwise nothing changes; null: any options.",
    )


@data()
class LimitMirror(Command[PlainResult]):
    """Command to limit the bytes per second that each broker may fetch from a mirror's source."""

    name: str = string(about="Name of the mirror.")
    bandwidth: int = int64(about="Bytes per second that each broker may fetch from the source; 0: no limit.")


@data()
class DeleteMirror(Command[PlainResult]):
    """Command to remove a mirror; its topics remain."""

    name: str = string(about="Name of the mirror.")


@data()
class MirroredTopic(Message):
    """A topic of a mirror's source as it is now: its id, its number of partitions, and the settings that the copy takes
    over."""

    name: str = string(about="Name of the topic, at the source and here.")
    source_topic_id: bytes = uuid(about="Id of the topic at the source; zero if the source reports none.")
    partitions: int = int32(about="Number of partitions.")
    replication_factor: int = int16(about="Replication factor of the copy, if there are as many brokers.")
    configs: list[NewTopicConfig] = array(NewTopicConfig, about="Settings that the copy takes over.")


@data()
class MirroredTopicResult(Message):
    """Result of the creation or update of the copy of one topic."""

    name: str = string(about="Name of the topic.")
    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str = string(about="Explanation for people.")


@data()
class FollowTopicsResult(CommandResult):
    """Results of FollowTopics, one for each topic in the order of the command."""

    error_code: int = int16(about="Error code of the whole command, 0 for success.")
    error_message: str = string(about="Explanation for people.")
    topics: list[MirroredTopicResult] = array(
        MirroredTopicResult, about="Results, in the order of the command."
    )


@data()
class FollowTopics(Command[FollowTopicsResult]):
    """Command to adapt a mirror's copies to the source's topics: create missing copies, add partitions, and apply
    settings."""

    mirror: str = string(about="Name of the mirror.")
    topics: list[MirroredTopic] = array(MirroredTopic, about="Topics of the source.")
    seed: int = int64(about="Random number from which the placement of replicas is computed.")


@data()
class FollowAcls(Command[PlainResult]):
    """Command to add the ACLs that a mirror's source has, and to remove copied ACLs that the source no longer has."""

    mirror: str = string(about="Name of the mirror.")
    acls: list[AclEntry] = array(AclEntry, about="All matching ACLs, as the source has them now.")


@data()
class MirrorPartitionReport(Message):
    """Report of the leader of a copied partition: new leader epochs of the source, the offset to begin at, or a fault.
    Fields at their defaults report nothing."""

    topic_id: bytes = uuid(about="Id of the topic here.")
    partition: int = int32(about="Partition index.")
    leader_epoch: int = int32(about="Leader epoch in which the broker leads.")
    epochs: list[SourceEpoch] = array(
        SourceEpoch, about="Leader epochs of the source that are about to be copied."
    )
    begins_at: int = int64(default=-1, about="Offset at which the empty log shall begin; -1: unchanged.")
    fault: int = int8(about="Kind of the fault, 0 for none; see `mirror_table.FaultKind`.")
    fault_first: int = int64(default=-1, about="First offset that the fault affects.")
    fault_end: int = int64(default=-1, about="Offset after the last one that the fault affects.")
    fault_reason: str = string(about="Explanation of the fault for people.")


@data()
class ReportMirrorPartitions(Command[PlainResult]):
    """Command of a broker that reports leader epochs and faults which it has found while it copied partitions of a
    mirror. Reports of former leaders are ignored."""

    broker_id: int = int32(about="Id of the broker that reports.")
    partitions: list[MirrorPartitionReport] = array(MirrorPartitionReport, about="Reports, by partition.")


@data()
class AcceptMirrorFaults(Command[PlainResult]):
    """Command to accept the records that a mirror's stopped copies have lost; copying continues after them."""

    mirror: str = string(about="Name of the mirror.")
    topics: list[str] = array(string, about="Names of topics; empty: all topics of the mirror.")


@data()
class AnnounceMirrorCut(Command[PlainResult]):
    """Command to begin a round of a mirror: all copied partitions are to reach this cut of the source, a commit index
    of its transactions."""

    mirror: str = string(about="Name of the mirror.")
    cut: int = int64(default=-1, about="Commit index of the source, from its FindCut.")
    metadata_offset: int = int64(default=-1, about="Metadata offset of the source, from the same answer.")
    time_ms: int = int64(default=-1, about="Time of that answer by the broker's clock, in ms since 1970.")
    copies: int = int32(
        about="Number of partitions that the source was asked about. If the mirror has other partitions by now, the "
        "cut does not hold for them."
    )
    told_offset: int = int64(
        "0+",
        tag=0,
        default=-1,
        about="Metadata offset of the source for which it was asked about application versions. The round does not "
        "begin if other versions are known by now.",
    )
    next_offset: int = int64(
        "0+",
        tag=1,
        default=-1,
        about="Metadata offset of the source up to which its answer contains changes.",
    )
    versions_are_whole: bool = boolean(
        "0+", tag=2, about="Whether transactional ids that are not listed have no version."
    )
    versions: list[MirroredAppVersion] = array(
        MirroredAppVersion, "0+", tag=3, about="Application versions at the cut: the changed ones, or all."
    )
    has_offsets: bool = boolean(
        "0+", tag=4, about="Whether these partitions include committed offsets, or the source had none."
    )


@data()
class ReachedCut(Message):
    """A copied partition that has all records up to the offset at which a round's cut divides it, below the high
    watermark."""

    topic_id: bytes = uuid(about="Id of the topic here.")
    partition: int = int32(about="Partition index.")
    leader_epoch: int = int32(about="Leader epoch in which the broker leads.")
    number: int = int64(about="Number of the round.")
    offset: int = int64(about="Offset at which the cut divides the partition.")


@data()
class ReportMirrorCuts(Command[PlainResult]):
    """Command of a broker that reports the rounds' cuts that the copied partitions which it leads have reached. Reports
    of former leaders are ignored."""

    broker_id: int = int32(about="Id of the broker that reports.")
    partitions: list[ReachedCut] = array(ReachedCut, about="Copies with the cuts that they have reached.")


@data()
class PromoteMirrorAtCutResult(CommandResult):
    """Result of PromoteMirrorAtCut: the chosen round of the mirror, with its cut of the source."""

    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str = string(about="Explanation for people.")
    number: int = int64(default=-1, about="Number of the round.")
    cut: int = int64(default=-1, about="Commit index of the cut at the source.")
    time_ms: int = int64(default=-1, about="Time at which the source reported the cut, in ms since 1970.")


@data()
class PromoteMirrorAtCut(Command[PromoteMirrorAtCutResult]):
    """Command to promote the topics of a mirror at the newest cut that all of its copies have reached."""

    name: str = string(about="Name of the mirror.")


@data()
class TellMirrorOffsets(Command[PlainResult]):
    """Command of the broker that leads a partition of a mirror's copy of committed offsets. It reports the offsets as
    of the cut at which the mirror was promoted."""

    broker_id: int = int32(about="Id of the broker that reports.")
    topic_id: bytes = uuid(about="Id of the copy here.")
    partition: int = int32(about="Partition index.")
    leader_epoch: int = int32(about="Leader epoch in which the broker leads.")
    offsets: list[MirroredOffset] = array(
        MirroredOffset, about="Committed offsets of the partition, some or all."
    )
    is_last: bool = boolean(
        about="Whether this report completes the offsets of the partition, together with earlier reports."
    )


@data()
class TakenOffsets(Message):
    """A partition of this cluster's `__consumer_offsets` whose groups have taken over the offsets of a promoted
    mirror."""

    partition: int = int32(about="Partition index.")
    leader_epoch: int = int32(about="Leader epoch in which the broker leads.")


@data()
class ReportOffsetsTaken(Command[PlainResult]):
    """Command of a broker that has committed a mirror's offsets for the groups that it coordinates. Reports of former
    leaders are ignored."""

    broker_id: int = int32(about="Id of the broker that reports.")
    mirror: str = string(about="Name of the mirror.")
    topic_id: bytes = uuid(about="Id of the topic in which this cluster keeps committed offsets.")
    partitions: list[TakenOffsets] = array(TakenOffsets, about="Partitions that have the offsets.")

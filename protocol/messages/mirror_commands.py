"""Commands about mirrors: their life, the topics that they copy, and what stops a copy."""

from __future__ import annotations

from ..schema import Message, array, boolean, data, int8, int16, int32, int64, string, uuid
from .acl_commands import AclEntry
from .command import Command, CommandResult, PlainResult
from .mirror_records import MirroredAppVersion, MirroredOffset, MirrorOption, SourceEpoch
from .topic_commands import NewTopicConfig


@data()
class CreateMirror(Command[PlainResult]):
    """Begin to copy topics of another cluster."""

    name: str = string(about="Of the mirror.")
    source_cluster_id: str = string(about="Of the cluster that is copied.")
    bootstrap_servers: str = string(about="Where that cluster is first asked.")
    topics: str = string(about="Regular expression of topics.")
    groups: str = string(about="Regular expression of groups; empty: none.")
    start: int = int64(default=-2, about="-2 at the start, -1 at the end, else a time in ms.")
    options: list[MirrorOption] = array(MirrorOption, about="Options of the connections; secrets encrypted.")
    is_checked_only: bool = boolean(about="Whether only to check.")
    bandwidth: int = int64(
        "0+", tag=0, about="Bytes/s that each broker may fetch from the source; 0: no limit."
    )
    acls: bool = boolean("0+", tag=1, about="Whether ACLs of these topics and groups follow.")
    awaits_cuts: bool = boolean("0+", tag=2, about="Whether the source has told a cut, and will tell others.")


@data()
class AlterMirror(Command[PlainResult]):
    """Bring a mirror into another phase: pause it, let it go on, promote its topics."""

    name: str = string(about="Of the mirror.")
    phase: int = int8(about="1 active, 2 paused, 3 promoted.")


@data()
class ReconnectMirror(Command[PlainResult]):
    """Reach the source elsewhere, or otherwise: with a new password, or one that is encrypted anew."""

    name: str = string(about="Of the mirror.")
    bootstrap_servers: str = string(about="Where the source is first asked; empty: as before.")
    options: list[MirrorOption] = array(MirrorOption, about="All options of the connections from now on.")
    replaces: list[MirrorOption] | None = array(
        MirrorOption,
        nullable="0+",
        default=None,
        about="Only if these are the present ones; null: in any case.",
    )


@data()
class LimitMirror(Command[PlainResult]):
    """Let the brokers fetch from the source only so fast."""

    name: str = string(about="Of the mirror.")
    bandwidth: int = int64(about="Bytes/s that each broker may fetch from the source; 0: no limit.")


@data()
class DeleteMirror(Command[PlainResult]):
    """Forget a mirror; its topics stay."""

    name: str = string(about="Of the mirror.")


@data()
class MirroredTopic(Message):
    """A topic of the source, as it is there now."""

    name: str = string(about="Name, there and here.")
    source_topic_id: bytes = uuid(about="Its id there; zero if the cluster tells none.")
    partitions: int = int32(about="How many it has.")
    replication_factor: int = int16(about="Of its copy, as far as there are brokers.")
    configs: list[NewTopicConfig] = array(NewTopicConfig, about="Settings that its copy takes over.")


@data()
class MirroredTopicResult(Message):
    """What became of the copy of one topic."""

    name: str = string(about="Name.")
    error_code: int = int16(about="0 for success.")
    error_message: str = string(about="For people.")


@data()
class FollowTopicsResult(CommandResult):
    """One result for each topic, in order."""

    error_code: int = int16(about="About the whole command; 0 for success.")
    error_message: str = string(about="For people.")
    topics: list[MirroredTopicResult] = array(MirroredTopicResult, about="In the order of the command.")


@data()
class FollowTopics(Command[FollowTopicsResult]):
    """Have copies of topics: create them, let them grow, and give them their settings."""

    mirror: str = string(about="Name of the mirror.")
    topics: list[MirroredTopic] = array(MirroredTopic, about="Topics of the source.")
    seed: int = int64(about="Random: the placement starts from it.")


@data()
class FollowAcls(Command[PlainResult]):
    """Have the ACLs that the source has, and those no more that it had."""

    mirror: str = string(about="Name of the mirror.")
    acls: list[AclEntry] = array(AclEntry, about="All that match, as the source has them now.")


@data()
class MirrorPartitionReport(Message):
    """What the leader of a copy has found; empty fields say nothing."""

    topic_id: bytes = uuid(about="Id of the topic here.")
    partition: int = int32(about="Partition index.")
    leader_epoch: int = int32(about="In which the broker leads.")
    epochs: list[SourceEpoch] = array(SourceEpoch, about="Epochs of the source, about to be copied.")
    begins_at: int = int64(default=-1, about="Where the empty log shall begin; -1: nowhere else.")
    fault: int = int8(about="0 none; see `mirror_table.FaultKind`.")
    fault_first: int = int64(default=-1, about="First offset that the fault is about.")
    fault_end: int = int64(default=-1, about="The offset behind the last one.")
    fault_reason: str = string(about="For people.")


@data()
class ReportMirrorPartitions(Command[PlainResult]):
    """A broker tells what it has found at the source. Reports of former leaders count for nothing."""

    broker_id: int = int32(about="Who tells it.")
    partitions: list[MirrorPartitionReport] = array(MirrorPartitionReport, about="What it has found.")


@data()
class AcceptMirrorFaults(Command[PlainResult]):
    """Go on behind the records that are lost."""

    mirror: str = string(about="Name of the mirror.")
    topics: list[str] = array(string, about="Names of topics; empty: all of the mirror.")


@data()
class AnnounceMirrorCut(Command[PlainResult]):
    """Begin a round: all copies of a mirror are to reach this cut of the source."""

    mirror: str = string(about="Name of the mirror.")
    cut: int = int64(default=-1, about="A commit index of the source, as its FindCut told it.")
    metadata_offset: int = int64(default=-1, about="Of the source, told with it.")
    time_ms: int = int64(default=-1, about="When that was, by the broker's clock.")
    copies: int = int32(
        about="How many partitions the source was asked about. If there are others by now, the cut is not theirs."
    )
    told_offset: int = int64(
        "0+",
        tag=0,
        default=-1,
        about="The source's metadata offset that it was told for application versions. If others are known by now, the "
        "round does not begin.",
    )
    next_offset: int = int64("0+", tag=1, default=-1, about="Up to which it has told them now.")
    versions_are_whole: bool = boolean("0+", tag=2, about="Transactional ids that are not told have none.")
    versions: list[MirroredAppVersion] = array(
        MirroredAppVersion, "0+", tag=3, about="Application versions at the cut that have changed, or all."
    )
    has_offsets: bool = boolean(
        "0+", tag=4, about="Whether committed offsets are among these partitions, or the source had none."
    )


@data()
class ReachedCut(Message):
    """A copy has all up to where the source cuts the partition, below its high watermark."""

    topic_id: bytes = uuid(about="Id of the topic here.")
    partition: int = int32(about="Partition index.")
    leader_epoch: int = int32(about="In which the broker leads.")
    number: int = int64(about="Of the round.")
    offset: int = int64(about="Where the source cuts the partition.")


@data()
class ReportMirrorCuts(Command[PlainResult]):
    """A broker tells which cuts the copies that it leads have reached. Reports of former leaders count for nothing."""

    broker_id: int = int32(about="Who tells it.")
    partitions: list[ReachedCut] = array(ReachedCut, about="What they have reached.")


@data()
class PromoteMirrorAtCutResult(CommandResult):
    """Where a mirror was promoted."""

    error_code: int = int16(about="0 for success.")
    error_message: str = string(about="For people.")
    number: int = int64(default=-1, about="Of the round.")
    cut: int = int64(default=-1, about="Its commit index at the source.")
    time_ms: int = int64(default=-1, about="When the source told it.")


@data()
class PromoteMirrorAtCut(Command[PromoteMirrorAtCutResult]):
    """Promote the topics of a mirror at the newest cut that all of its copies have reached."""

    name: str = string(about="Of the mirror.")


@data()
class TellMirrorOffsets(Command[PlainResult]):
    """The leader of a copy of committed offsets tells those as of the cut at which the mirror was promoted."""

    broker_id: int = int32(about="Who tells it.")
    topic_id: bytes = uuid(about="Id of the copy here.")
    partition: int = int32(about="Partition index.")
    leader_epoch: int = int32(about="In which the broker leads.")
    offsets: list[MirroredOffset] = array(MirroredOffset, about="Some of them, or all.")
    is_last: bool = boolean(about="Whether that is all of the partition, with what was told before.")


@data()
class TakenOffsets(Message):
    """A partition in which committed offsets are kept has those of the mirror."""

    partition: int = int32(about="Partition index.")
    leader_epoch: int = int32(about="In which the broker leads.")


@data()
class ReportOffsetsTaken(Command[PlainResult]):
    """A broker has committed what a mirror has told, for the groups that it coordinates. Former leaders are passed
    over."""

    broker_id: int = int32(about="Who tells it.")
    mirror: str = string(about="Name of the mirror.")
    topic_id: bytes = uuid(about="Id of the topic in which this cluster keeps committed offsets.")
    partitions: list[TakenOffsets] = array(TakenOffsets, about="Which have them.")

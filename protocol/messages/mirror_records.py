"""Records about mirrors: clusters whose topics this one copies, offset by offset."""

from __future__ import annotations

from ..schema import Message, array, boolean, data, int8, int32, int64, string, uuid


@data()
class MirrorOption(Message):
    """One option of the connections to a source cluster."""

    name: str = string(about="Of the client, as sasl_mechanism.")
    value: str = string(secret=True, about="Encrypted by a broker if the option is a secret.")


@data()
class MirrorRecord(Message):
    """A mirror is there, or has other settings."""

    name: str = string(about="Of the mirror.")
    source_cluster_id: str = string(about="Of the cluster that is copied.")
    bootstrap_servers: str = string(
        about="Where that cluster is first asked: host:port, separated by commas."
    )
    topics: str = string(about="Regular expression (RE2) of the topics to be copied.")
    groups: str = string(about="Regular expression (RE2) of the groups whose offsets follow; empty: none.")
    start: int = int64(
        about="Where copies of topics begin: -2 at the start, -1 at the end, else a time in ms."
    )
    phase: int = int8(about="1 active, 2 paused, 3 promoted.")
    options: list[MirrorOption] = array(MirrorOption, about="Options of the connections.")
    promoted_round: int = int64(
        "0+", tag=0, default=-1, about="At the cut of which round it was promoted; -1: at none, or not yet."
    )
    bandwidth: int = int64(
        "0+", tag=1, about="Bytes/s that each broker may fetch from the source; 0: no limit."
    )
    acls: bool = boolean("0+", tag=2, about="Whether ACLs of these topics and groups follow.")


@data()
class MirrorRemovedRecord(Message):
    """A mirror is gone; its topics stay."""

    name: str = string(about="Of the mirror.")


@data()
class MirrorTopicRecord(Message):
    """A topic is the copy of a topic."""

    topic_id: bytes = uuid(about="Id of the topic here.")
    mirror: str = string(about="Name of its mirror.")
    source_topic_id: bytes = uuid(about="Id of the topic that is copied; zero if its cluster tells none.")


@data()
class MirrorAclRecord(Message):
    """A mirror has added an ACL, or has removed one that it had added."""

    mirror: str = string(about="Name of the mirror.")
    is_copied: bool = boolean(about="Whether the mirror has added it, and may remove it.")
    resource_type: int = int8(about="What is protected.")
    resource_name: str = string(about="Name of the pattern.")
    pattern_type: int = int8(about="3 LITERAL, 4 PREFIXED.")
    principal: str = string(about="Whom it is about.")
    host: str = string(about="From where: *, an address, or a network in CIDR notation.")
    operation: int = int8(about="What is done.")
    permission: int = int8(about="2 DENY, 3 ALLOW.")


@data()
class RetiredTopicIdRecord(Message):
    """A copy had this id, and is deleted. No topic gets it again: a broker that was away may still have the old log."""

    topic_id: bytes = uuid(about="Id that the copy had here.")


@data()
class SourceEpoch(Message):
    """Where a leader epoch of the source begins."""

    epoch: int = int32(about="Leader epoch in the source cluster.")
    start_offset: int = int64(about="First offset of that epoch.")


@data()
class MirrorPartitionRecord(Message):
    """How far the copy of a partition agrees with its source, and what stops it."""

    topic_id: bytes = uuid(about="Id of the topic here.")
    partition: int = int32(about="Partition index.")
    lineage: list[SourceEpoch] = array(SourceEpoch, about="Leader epochs of the source, as far as copied.")
    fault: int = int8(about="0 none; see `mirror_table.FaultKind`.")
    fault_first: int = int64(default=-1, about="First offset that the fault is about.")
    fault_end: int = int64(default=-1, about="The offset behind the last one.")
    fault_reason: str = string(about="For people.")
    resumed_epoch: int = int32(default=-1, about="Leader epoch that began at `resumed_offset`; -1: none.")
    resumed_offset: int = int64(default=-1, about="Where the log ended when that epoch began.")
    promoted_epoch: int = int32(default=-1, about="First leader epoch that takes records; -1: none yet.")
    resumed_how: int = int8(
        "0+", tag=0, about="What becomes of what does not end there: see `mirror_table.ResumptionKind`."
    )


@data()
class MirrorCutRecord(Message):
    """A round begins: each copy of a mirror is to tell where it has reached a cut of its source."""

    mirror: str = string(about="Name of the mirror.")
    number: int = int64(about="Of the round; rises by one.")
    cut: int = int64(default=-1, about="A commit index of the source; -1 before its first transaction.")
    metadata_offset: int = int64(default=-1, about="Of the source, when it told the cut.")
    time_ms: int = int64(default=-1, about="When the source told it, by the clock of who asked.")
    has_offsets: bool = boolean(
        "0+", tag=0, about="Whether the copies tell what groups had committed at the cut."
    )


@data()
class ReachedPartition(Message):
    """A copy that has reached a cut."""

    partition: int = int32(about="Partition index.")
    offset: int = int64(
        about="Where the source cuts the partition; -1: what was told before is not true any more."
    )


@data()
class ReachedTopic(Message):
    """Copies of one topic that have reached a cut."""

    topic_id: bytes = uuid(about="Id of the topic here.")
    partitions: list[ReachedPartition] = array(ReachedPartition, about="Which.")


@data()
class MirrorCutReachedRecord(Message):
    """Copies have all that lies below a cut: it is on all that may lead them."""

    mirror: str = string(about="Name of the mirror.")
    number: int = int64(about="Of the round.")
    topics: list[ReachedTopic] = array(ReachedTopic, about="Which have reached it.")


@data()
class MirrorCutsTrimmedRecord(Message):
    """Earlier rounds of a mirror are of no use any more."""

    mirror: str = string(about="Name of the mirror.")
    number: int = int64(about="Rounds before this one go.")


@data()
class MirroredAppVersion(Message):
    """The application version of a transactional id at a cut of the source."""

    transactional_id: str = string(about="Whose.")
    app_version: int = int64(default=-1, about="-1: it has none any more.")


@data()
class MirrorVersionsRecord(Message):
    """What application versions the source's transactional ids had at a cut."""

    mirror: str = string(about="Name of the mirror.")
    cut: int = int64(default=-1, about="A commit index of the source.")
    is_whole: bool = boolean(about="All others have none; else they are as they were.")
    next_offset: int = int64(default=-1, about="The source's metadata offset up to which changes are told.")
    versions: list[MirroredAppVersion] = array(MirroredAppVersion, about="Those that have changed, or all.")


@data()
class MirroredOffset(Message):
    """What a group of the source had committed at a cut."""

    group: str = string(about="Id of the group.")
    topic_id: bytes = uuid(about="Id of the topic here.")
    partition: int = int32(about="Partition index.")
    offset: int = int64(about="Next offset to consume.")
    metadata: str = string(about="What the client keeps with the offset.")


@data()
class MirrorOffsetsDueRecord(Message):
    """A mirror was promoted at a cut: committed offsets as of that cut are to be taken over."""

    mirror: str = string(about="Name of the mirror.")
    topic_id: bytes = uuid(
        about="Id here of the copy of the source's committed offsets; zero: it had none at the cut."
    )


@data()
class MirrorOffsetsToldRecord(Message):
    """What one partition of that copy has."""

    mirror: str = string(about="Name of the mirror.")
    partition: int = int32(about="Of the copy.")
    is_last: bool = boolean(about="Whether that is all of the partition, with what was told before.")
    offsets: list[MirroredOffset] = array(MirroredOffset, about="Some of its offsets, as of the cut.")
    is_given_up: bool = boolean(
        "0+",
        tag=0,
        about="Whether the rest is lost, and a person has accepted that: nobody tells it any more.",
    )


@data()
class MirrorOffsetsTakenRecord(Message):
    """Groups have their offsets."""

    mirror: str = string(about="Name of the mirror.")
    partitions: list[int] = array(int32, about="Of the topic in which this cluster keeps committed offsets.")


@data()
class MirrorOffsetsDoneRecord(Message):
    """All groups have their offsets, or nobody waits for them any more."""

    mirror: str = string(about="Name of the mirror.")

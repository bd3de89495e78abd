"""Metadata records about mirrors: clusters whose topics this cluster copies, offset by offset."""

from __future__ import annotations

from ..wire.schema import Message, array, boolean, data, int8, int32, int64, string, uuid


@data()
class MirrorOption(Message):
    """An option of the connections to a source cluster."""

    name: str = string(about="Name of a client option, such as sasl_mechanism.")
    value: str = string(secret=True, about="Value; a broker encrypts it if the option is a secret.")


@data()
class MirrorRecord(Message):
    """A mirror that was created, or whose settings changed."""

    name: str = string(about="Name of the mirror.")
    source_cluster_id: str = string(about="Id of the cluster that is copied.")
    bootstrap_servers: str = string(
        about="Addresses at which that cluster is first contacted: host:port, separated by commas."
    )
    topics: str = string(about="Regular expression (RE2) of the topics to copy.")
    groups: str = string(
        about="Regular expression (RE2) of the groups whose offsets are copied; empty: none."
    )
    start: int = int64(
        about="Offset at which copies of topics begin: -2 the start, -1 the end, otherwise a time in ms since 1970."
    )
    phase: int = int8(about="1 active, 2 paused, 3 promoted.")
    options: list[MirrorOption] = array(MirrorOption, about="Options of the connections to the source.")
    promoted_round: int = int64(
        "0+",
        tag=0,
        default=-1,
        about="Number of the round at whose cut the mirror was promoted; -1: at no cut, or not yet.",
    )
    bandwidth: int = int64(
        "0+", tag=1, about="Bytes per second that each broker may fetch from the source; 0: no limit."
    )
    acls: bool = boolean("0+", tag=2, about="Whether the mirror copies the ACLs of these topics and groups.")


@data()
class MirrorRemovedRecord(Message):
    """Removal of a mirror; its topics remain."""

    name: str = string(about="Name of the mirror.")


@data()
class MirrorTopicRecord(Message):
    """A topic that is the copy of a source topic."""

    topic_id: bytes = uuid(about="Id of the topic here.")
    mirror: str = string(about="Name of the mirror.")
    source_topic_id: bytes = uuid(about="Id of the source topic; zero if its cluster reports none.")


@data()
class MirrorAclRecord(Message):
    """An ACL that a mirror has added, or has added and removed again."""

    mirror: str = string(about="Name of the mirror.")
    is_copied: bool = boolean(
        about="Whether the ACL is there because the mirror added it, so that the mirror may remove it."
    )
    resource_type: int = int8(about="Type of the protected resources.")
    resource_name: str = string(about="Name of the resource pattern.")
    pattern_type: int = int8(about="3 LITERAL, 4 PREFIXED.")
    principal: str = string(about="Principal that the ACL applies to.")
    host: str = string(
        about="Client host that the ACL applies to: *, an address, or a network in CIDR notation."
    )
    operation: int = int8(about="Operation that is allowed or denied.")
    permission: int = int8(about="2 DENY, 3 ALLOW.")


@data()
class RetiredTopicIdRecord(Message):
    """Topic id of a deleted copy. No topic gets it again, since a broker that was away may still have the old log."""

    topic_id: bytes = uuid(about="Id that the copy had here.")


@data()
class SourceEpoch(Message):
    """A leader epoch of the source with its first offset."""

    epoch: int = int32(about="Leader epoch in the source cluster.")
    start_offset: int = int64(about="First offset of that epoch.")


@data()
class MirrorPartitionRecord(Message):
    """State of the copy of a partition: how far it agrees with its source, and the fault that stops it."""

    topic_id: bytes = uuid(about="Id of the topic here.")
    partition: int = int32(about="Partition index.")
    lineage: list[SourceEpoch] = array(
        SourceEpoch, about="Leader epochs of the source, up to where the partition was copied."
    )
    fault: int = int8(about="Kind of the fault, 0 for none; see `mirror_table.FaultKind`.")
    fault_first: int = int64(default=-1, about="First offset that the fault affects.")
    fault_end: int = int64(default=-1, about="Offset after the last one that the fault affects.")
    fault_reason: str = string(about="Explanation of the fault for people.")
    resumed_epoch: int = int32(
        default=-1, about="Leader epoch here that began at `resumed_offset`; -1: none."
    )
    resumed_offset: int = int64(default=-1, about="Offset at which the log has to continue in that epoch.")
    promoted_epoch: int = int32(
        default=-1, about="First leader epoch here that takes records of producers; -1: none yet."
    )
    resumed_how: int = int8(
        "0+",
        tag=0,
        about="Rule for a log that does not end at `resumed_offset`: see `mirror_table.ResumptionKind`.",
    )


@data()
class MirrorCutRecord(Message):
    """Begin of a round of a mirror: each copied partition is to report when it has reached a cut of its source."""

    mirror: str = string(about="Name of the mirror.")
    number: int = int64(about="Number of the round; rises by one.")
    cut: int = int64(default=-1, about="Commit index of the source; -1 before its first transaction.")
    metadata_offset: int = int64(default=-1, about="Metadata offset of the source when it reported the cut.")
    time_ms: int = int64(
        default=-1,
        about="Time at which the source reported the cut, by the clock of the broker that asked, in ms since 1970.",
    )
    has_offsets: bool = boolean(
        "0+", tag=0, about="Whether the copies include the committed offsets of groups at the cut."
    )


@data()
class ReachedPartition(Message):
    """A copied partition that has reached a round's cut of the source, and the offset of the cut in it."""

    partition: int = int32(about="Partition index.")
    offset: int = int64(
        about="Offset at which the cut divides the partition; -1: an earlier report is no longer valid."
    )


@data()
class ReachedTopic(Message):
    """Copied partitions of one topic that have reached a round's cut of the source."""

    topic_id: bytes = uuid(about="Id of the topic here.")
    partitions: list[ReachedPartition] = array(
        ReachedPartition, about="Partitions that have reached the cut."
    )


@data()
class MirrorCutReachedRecord(Message):
    """Copied partitions that have all records below a round's cut of the source, on every replica that may lead
    them."""

    mirror: str = string(about="Name of the mirror.")
    number: int = int64(about="Number of the round.")
    topics: list[ReachedTopic] = array(ReachedTopic, about="Copies that have reached the cut, by topic.")


@data()
class MirrorCutsTrimmedRecord(Message):
    """Removal of earlier rounds of a mirror, which are of no use any more."""

    mirror: str = string(about="Name of the mirror.")
    number: int = int64(about="Number of the first round that remains.")


@data()
class MirroredAppVersion(Message):
    """The application version of a transactional id at a cut of the source."""

    transactional_id: str = string(about="Transactional id.")
    app_version: int = int64(default=-1, about="Application version; -1: the id has none any more.")


@data()
class MirrorVersionsRecord(Message):
    """Application versions that the source's transactional ids had at a cut."""

    mirror: str = string(about="Name of the mirror.")
    cut: int = int64(default=-1, about="Commit index of the source.")
    is_whole: bool = boolean(
        about="Whether ids that are not listed have no version; otherwise their versions have not changed."
    )
    next_offset: int = int64(
        default=-1, about="Metadata offset of the source up to which changes were reported."
    )
    versions: list[MirroredAppVersion] = array(
        MirroredAppVersion, about="Application versions: the changed ones, or all."
    )


@data()
class MirroredOffset(Message):
    """An offset that a group of the source had committed at a cut."""

    group: str = string(about="Id of the group.")
    topic_id: bytes = uuid(about="Id of the topic here.")
    partition: int = int32(about="Partition index.")
    offset: int = int64(about="Next offset to consume.")
    metadata: str = string(about="Metadata that the client stores with the offset; opaque.")


@data()
class MirrorOffsetsDueRecord(Message):
    """Promotion of a mirror at a cut: this cluster takes over the committed offsets as of that cut."""

    mirror: str = string(about="Name of the mirror.")
    topic_id: bytes = uuid(
        about="Id here of the copy of the source's committed offsets; zero: the source had none at the cut."
    )


@data()
class MirrorOffsetsToldRecord(Message):
    """Committed offsets from one partition of the copy that MirrorOffsetsDueRecord names."""

    mirror: str = string(about="Name of the mirror.")
    partition: int = int32(about="Partition of the copy.")
    is_last: bool = boolean(
        about="Whether this record completes the offsets of the partition, together with earlier records."
    )
    offsets: list[MirroredOffset] = array(
        MirroredOffset, about="Committed offsets as of the cut, some or all."
    )
    is_given_up: bool = boolean(
        "0+",
        tag=0,
        about="Whether the remaining offsets are lost, and an operator has accepted that: no broker will report them.",
    )


@data()
class MirrorOffsetsTakenRecord(Message):
    """Partitions of `__consumer_offsets` whose groups have taken over their committed offsets from a promoted
    mirror."""

    mirror: str = string(about="Name of the mirror.")
    partitions: list[int] = array(
        int32, about="Partitions of the topic in which this cluster keeps committed offsets."
    )


@data()
class MirrorOffsetsDoneRecord(Message):
    """End of the takeover of committed offsets from a promoted mirror: all groups have their offsets, or no group waits
    for them any more."""

    mirror: str = string(about="Name of the mirror.")

"""The command of a failback: topics become copies of topics that were their copies."""

from __future__ import annotations

from ..wire.schema import Message, array, boolean, data, int32, int64, string, uuid
from .command import Command, PlainResult
from .mirror_records import MirrorOption, SourceEpoch


@data()
class ReturningPartition(Message):
    """A partition of a failback: it becomes a copy of the source's partition, from the offset at which the two logs
    diverge."""

    partition: int = int32(about="Partition index.")
    leader_epoch: int = int32(
        about="Leader epoch of this cluster in which the log was compared with the source."
    )
    common_offset: int = int64(about="First offset at which the log differs from the log of the source.")
    lineage: list[SourceEpoch] = array(SourceEpoch, about="Leader epochs of the source up to that offset.")


@data()
class ReturningTopic(Message):
    """A topic of a failback, which becomes a copy of the source's topic, with all its partitions."""

    topic_id: bytes = uuid(about="Id of the topic here.")
    source_topic_id: bytes = uuid(about="Id of the topic at the source.")
    partitions: list[ReturningPartition] = array(ReturningPartition, about="All partitions of the topic.")


@data()
class FailBackMirror(Command[PlainResult]):
    """Command to create a mirror whose copies are existing topics, which the source copied before. All of them become
    copies, or none."""

    name: str = string(about="Name of the mirror.")
    source_cluster_id: str = string(about="Id of the cluster that is copied.")
    bootstrap_servers: str = string(about="Addresses at which that cluster is first contacted.")
    topics: str = string(about="Regular expression of topics.")
    groups: str = string(about="Regular expression of groups; empty: none.")
    options: list[MirrorOption] = array(
        MirrorOption, about="Options of the connections to the source; secrets are encrypted."
    )
    copies: list[ReturningTopic] = array(ReturningTopic, about="Topics that become copies.")
    discards: bool = boolean(about="Whether records after the common offsets are cut off.")
    is_checked_only: bool = boolean(about="Whether to validate only, without any change.")
    bandwidth: int = int64(
        "0+", tag=0, about="Bytes per second that each broker may fetch from the source; 0: no limit."
    )
    acls: bool = boolean("0+", tag=1, about="Whether the mirror copies the ACLs of these topics and groups.")
    awaits_cuts: bool = boolean(
        "0+", tag=2, about="Whether the source has reported a cut, and will report others."
    )

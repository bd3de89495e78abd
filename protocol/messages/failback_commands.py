"""The command that makes topics copies of what were their copies."""

from __future__ import annotations

from ..schema import Message, array, boolean, data, int32, int64, string, uuid
from .command import Command, PlainResult
from .mirror_records import MirrorOption, SourceEpoch


@data()
class ReturningPartition(Message):
    """A partition that goes on as a copy."""

    partition: int = int32(about="Partition index.")
    leader_epoch: int = int32(about="Of ours, in which its log was looked at.")
    common_offset: int = int64(about="Where the log agrees no more with that of the source.")
    lineage: list[SourceEpoch] = array(SourceEpoch, about="Leader epochs of the source up to there.")


@data()
class ReturningTopic(Message):
    """A topic that becomes a copy, with all its partitions."""

    topic_id: bytes = uuid(about="Id of the topic here.")
    source_topic_id: bytes = uuid(about="Its id at the source.")
    partitions: list[ReturningPartition] = array(ReturningPartition, about="All that it has.")


@data()
class FailBackMirror(Command[PlainResult]):
    """Make a mirror whose copies are topics that there are already. All become copies, or none."""

    name: str = string(about="Of the mirror.")
    source_cluster_id: str = string(about="Of the cluster that is copied.")
    bootstrap_servers: str = string(about="Where that cluster is first asked.")
    topics: str = string(about="Regular expression of topics.")
    groups: str = string(about="Regular expression of groups; empty: none.")
    options: list[MirrorOption] = array(MirrorOption, about="Options of the connections; secrets encrypted.")
    copies: list[ReturningTopic] = array(ReturningTopic, about="Topics that become copies.")
    discards: bool = boolean(about="Whether what is behind the common offsets is cut off.")
    is_checked_only: bool = boolean(about="Whether only to check.")
    bandwidth: int = int64(
        "0+", tag=0, about="Bytes/s that each broker may fetch from the source; 0: no limit."
    )
    acls: bool = boolean("0+", tag=1, about="Whether ACLs of these topics and groups follow.")
    awaits_cuts: bool = boolean("0+", tag=2, about="Whether the source has told a cut, and will tell others.")

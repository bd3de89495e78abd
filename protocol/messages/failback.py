"""DescribeLineages (20012) and FailBackMirror (20013): turn topics whose copies another cluster holds into copies of
those copies.

APIs of Ottla's own, under keys that Kafka does not use. docs/MIRRORS.md explains failbacks.
"""

from __future__ import annotations

from ..wire.schema import (
    Message,
    Request,
    array,
    boolean,
    data,
    int16,
    int32,
    int64,
    request,
    response,
    string,
    uuid,
)
from .mirror_records import MirrorOption, SourceEpoch


@data()
class DescribedLineage(Message):
    """Description of the log of one partition, from its leader: offsets, and the leader epochs of this cluster and of a
    mirror's source."""

    partition: int = int32(about="Partition index.")
    error_code: int = int16(about="Error code, 0 for success. With an error the other fields are not set.")
    leader_epoch: int = int32(default=-1, about="Leader epoch in which the answering broker leads.")
    log_start_offset: int = int64(default=-1, about="Log start offset.")
    log_end_offset: int = int64(default=-1, about="Log end offset, acknowledged or not.")
    epochs: list[SourceEpoch] = array(
        SourceEpoch, about="Leader epochs of this cluster, each with its first offset."
    )
    promoted_offset: int = int64(
        default=-1,
        about="First offset of the first epoch that took records of producers here: 0 if the partition never was a "
        "copy; -1 if the log no longer reaches back to that epoch.",
    )
    lineage: list[SourceEpoch] = array(
        SourceEpoch, about="Leader epochs of the source, up to where the partition was copied."
    )


@data()
class LineageTopic(Message):
    """A topic with the logs of its partitions."""

    name: str = string(about="Name of the topic.")
    topic_id: bytes = uuid(about="Id of the topic in this cluster.")
    partition_count: int = int32(about="Number of partitions.")
    is_copy: bool = boolean(about="Whether the topic is a copy now, and takes no records of producers.")
    mirror: str = string(
        about="Name of the mirror that copies the topic, or has copied it; empty if that mirror is gone, or there "
        "never was one."
    )
    source_cluster_id: str = string(
        about="Id of the mirror's source cluster; empty if there is no mirror any more."
    )
    source_topic_id: bytes = uuid(
        about="Id of the source topic that is or was copied; zero if there is none."
    )
    partitions: list[DescribedLineage] = array(
        DescribedLineage, about="Partitions that the answering broker leads, by index."
    )


@response(20012, "0", flexible="0+")
class DescribeLineagesResponse(Message):
    """Answer to DescribeLineagesRequest."""

    throttle_time_ms: int = int32(about="How long a quota delayed the request, in ms.")
    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(
        nullable="0+", default=None, about="Explanation for people; null for success."
    )
    cluster_id: str = string(about="Id of this cluster.")
    topics: list[LineageTopic] = array(
        LineageTopic, about="Topics that match and that the client may describe, by name."
    )


@request(20012, "0", flexible="0+", response=DescribeLineagesResponse)
class DescribeLineagesRequest(Request[DescribeLineagesResponse]):
    """Request for the leader epochs of the logs of topics: of this cluster, and of the source from which they were
    copied.

    Each broker answers for the partitions that it leads, so the client asks all brokers.
    """

    topics: str = string(about="Regular expression (RE2) of whole names of topics.")


@data()
class FailedBackPartition(Message):
    """Comparison of a partition's log with the log of the source, by a failback: the offset at which the two
    diverge."""

    partition: int = int32(about="Partition index.")
    common_offset: int = int64(
        default=-1, about="Offset up to which the log here and the log of the source are equal."
    )
    log_end_offset: int = int64(default=-1, about="Log end offset here before the failback.")
    lost: int = int64(about="Number of records here that the source does not have.")


@data()
class FailedBackTopic(Message):
    """Result of the failback of one topic, which becomes a copy of the topic that was its copy."""

    name: str = string(about="Name of the topic, here and at the source.")
    error_code: int = int16(about="Reason why the topic cannot become a copy; 0 if it can.")
    error_message: str | None = string(
        nullable="0+", default=None, about="Explanation for people; null for success."
    )
    partitions: list[FailedBackPartition] = array(FailedBackPartition, about="Partitions, by index.")


@response(20013, "0", flexible="0+")
class FailBackMirrorResponse(Message):
    """Answer to FailBackMirrorRequest."""

    throttle_time_ms: int = int32(about="How long a quota delayed the request, in ms.")
    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(
        nullable="0+", default=None, about="Explanation for people; null for success."
    )
    source_cluster_id: str = string(about="Id of the cluster that is copied.")
    topics: list[FailedBackTopic] = array(
        FailedBackTopic, about="Topics by name, also those that were refused."
    )


@request(20013, "0", flexible="0+", response=FailBackMirrorResponse)
class FailBackMirrorRequest(Request[FailBackMirrorResponse]):
    """Request to make topics of this cluster copies of the topics that were their copies, from the offset at which the
    logs diverge."""

    name: str = string(about="Name of the mirror that will copy them.")
    bootstrap_servers: str = string(
        about="Addresses at which the source is first contacted: host:port, separated by commas."
    )
    topics: str = string(about="Regular expression (RE2) of whole names of topics.")
    groups: str = string(about="Regular expression (RE2) of whole names of groups; empty: none.")
    options: list[MirrorOption] = array(MirrorOption, about="Options of the client that reaches the source.")
    discards: bool = boolean(about="Whether records that the source does not have may be discarded.")
    validate_only: bool = boolean(
        about="Whether to validate only, and to report the records that would be lost."
    )
    logs: list[LineageTopic] = array(
        LineageTopic,
        about="Answers of the leaders of this cluster to DescribeLineages, for each partition of these topics.",
    )
    bandwidth: int = int64(
        "0+", tag=0, about="Bytes per second that each broker may fetch from the source; 0: no limit."
    )
    acls: bool = boolean("0+", tag=1, about="Whether the mirror copies the ACLs of these topics and groups.")

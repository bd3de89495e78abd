"""DescribeLineages (20012) and FailBackMirror (20013): topics that were copied elsewhere become copies of their copies.

APIs of Ottla's own, under keys that Kafka does not use. What a failback is stands in docs/MIRRORS.md.
"""

from __future__ import annotations

from ..schema import (
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
    """One of the `partitions` of LineageTopic: what its leader knows of its log."""

    partition: int = int32(about="Partition index.")
    error_code: int = int16(about="Error code, 0 for success. The rest says nothing then.")
    leader_epoch: int = int32(default=-1, about="In which the answering broker leads.")
    log_start_offset: int = int64(default=-1, about="Where the log begins.")
    log_end_offset: int = int64(default=-1, about="Where it ends, acknowledged or not.")
    epochs: list[SourceEpoch] = array(
        SourceEpoch, about="Leader epochs of this cluster, and where each begins."
    )
    promoted_offset: int = int64(
        default=-1,
        about="Where the first epoch begins that took records here: 0 if it never was a copy; -1 if the log does not "
        "reach back to it.",
    )
    lineage: list[SourceEpoch] = array(
        SourceEpoch, about="Leader epochs of the source, as far as it was copied."
    )


@data()
class LineageTopic(Message):
    """One of the `topics` of DescribeLineagesResponse."""

    name: str = string(about="Name.")
    topic_id: bytes = uuid(about="Id here.")
    partition_count: int = int32(about="How many partitions it has.")
    is_copy: bool = boolean(about="Whether it is a copy now, and takes no records.")
    mirror: str = string(about="Mirror that copies it, or has copied it; empty if there is none any more.")
    source_cluster_id: str = string(about="Of that mirror's source; empty if there is no mirror any more.")
    source_topic_id: bytes = uuid(about="Id of the topic that is or was copied; zero if there is none.")
    partitions: list[DescribedLineage] = array(
        DescribedLineage, about="Those that the answering broker leads, by index."
    )


@response(20012, "0", flexible="0+")
class DescribeLineagesResponse(Message):
    """Answer to DescribeLineagesRequest."""

    throttle_time_ms: int = int32(about="How long a quota delayed the request, in ms.")
    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(nullable="0+", default=None, about="For people; null for success.")
    cluster_id: str = string(about="Id of this cluster.")
    topics: list[LineageTopic] = array(LineageTopic, about="All that match and may be described, by name.")


@request(20012, "0", flexible="0+", response=DescribeLineagesResponse)
class DescribeLineagesRequest(Request[DescribeLineagesResponse]):
    """Ask which leader epochs the logs of topics have, their own and those of what they were copied from. Each broker
    tells of the partitions that it leads, so all are asked."""

    topics: str = string(about="Regular expression (RE2) of whole names of topics.")


@data()
class FailedBackPartition(Message):
    """One of the `partitions` of FailedBackTopic."""

    partition: int = int32(about="Partition index.")
    common_offset: int = int64(default=-1, about="Up to here the log here and that of the source are alike.")
    log_end_offset: int = int64(default=-1, about="Where the log here ended.")
    lost: int = int64(about="Records here that the source does not have.")


@data()
class FailedBackTopic(Message):
    """One of the `topics` of FailBackMirrorResponse."""

    name: str = string(about="Name, here and at the source.")
    error_code: int = int16(about="Why it cannot become a copy; 0 if it can.")
    error_message: str | None = string(nullable="0+", default=None, about="For people; null for success.")
    partitions: list[FailedBackPartition] = array(FailedBackPartition, about="By index.")


@response(20013, "0", flexible="0+")
class FailBackMirrorResponse(Message):
    """Answer to FailBackMirrorRequest."""

    throttle_time_ms: int = int32(about="How long a quota delayed the request, in ms.")
    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(nullable="0+", default=None, about="For people; null for success.")
    source_cluster_id: str = string(about="Id of the cluster that is copied.")
    topics: list[FailedBackTopic] = array(FailedBackTopic, about="By name, also where it is refused.")


@request(20013, "0", flexible="0+", response=FailBackMirrorResponse)
class FailBackMirrorRequest(Request[FailBackMirrorResponse]):
    """Make topics of this cluster copies of the topics that were their copies, from where the logs part."""

    name: str = string(about="Of the mirror that copies them.")
    bootstrap_servers: str = string(about="Where the source is first asked: host:port, separated by commas.")
    topics: str = string(about="Regular expression (RE2) of whole names of topics.")
    groups: str = string(about="Regular expression (RE2) of whole names of groups; empty: none.")
    options: list[MirrorOption] = array(MirrorOption, about="Options of the client that reaches the source.")
    discards: bool = boolean(about="Whether records that the source does not have may go.")
    validate_only: bool = boolean(about="Whether only to check, and to tell what would be lost.")
    logs: list[LineageTopic] = array(
        LineageTopic, about="What the leaders here have told of these topics, each of its partitions."
    )
    bandwidth: int = int64(
        "0+", tag=0, about="Bytes/s that each broker may fetch from the source; 0: no limit."
    )
    acls: bool = boolean("0+", tag=1, about="Whether ACLs of these topics and groups follow.")

"""CreateMirror (20008), AlterMirror (20009) and DescribeMirrors (20010): copies of topics of another cluster.

APIs of Ottla's own, under keys that Kafka does not use. docs/MIRRORS.md explains mirrors.
"""

from __future__ import annotations

from enum import IntEnum

from ..wire.schema import (
    Message,
    Request,
    array,
    boolean,
    data,
    int8,
    int16,
    int32,
    int64,
    request,
    response,
    string,
    uuid,
)
from .cuts import CutTopic
from .mirror_records import MirrorOption, SourceEpoch


class MirrorAction(IntEnum):
    """Actions of AlterMirror."""

    RESUME = 1
    PAUSE = 2
    PROMOTE = 3
    DELETE = 4
    ACCEPT_FAULTS = 5
    RECONNECT = 6
    PROMOTE_AT_CUT = 7
    LIMIT = 8


@response(20008, "0", flexible="0+")
class CreateMirrorResponse(Message):
    """Answer to CreateMirrorRequest."""

    throttle_time_ms: int = int32(about="How long a quota delayed the request, in ms.")
    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(
        nullable="0+", default=None, about="Explanation for people; null for success."
    )
    source_cluster_id: str = string(about="Id of the cluster that is copied.")


@request(20008, "0", flexible="0+", response=CreateMirrorResponse)
class CreateMirrorRequest(Request[CreateMirrorResponse]):
    """Request to begin to copy topics of another cluster. The broker connects to that cluster once before it
    answers."""

    name: str = string(about="Name of the mirror.")
    bootstrap_servers: str = string(
        about="Addresses at which the source is first contacted: host:port, separated by commas."
    )
    topics: str = string(about="Regular expression (RE2) of whole names of topics.")
    groups: str = string(about="Regular expression (RE2) of whole names of groups; empty: none.")
    start: int = int64(
        default=-2,
        about="Offset at which copies begin: -2 the start, -1 the end, otherwise a time in ms since 1970.",
    )
    options: list[MirrorOption] = array(MirrorOption, about="Options of the client that reaches the source.")
    validate_only: bool = boolean(about="Whether to validate only, without any change.")
    bandwidth: int = int64(
        "0+", tag=0, about="Bytes per second that each broker may fetch from the source; 0: no limit."
    )
    acls: bool = boolean("0+", tag=1, about="Whether the mirror copies the ACLs of these topics and groups.")


@response(20009, "0", flexible="0+")
class AlterMirrorResponse(Message):
    """Answer to AlterMirrorRequest."""

    throttle_time_ms: int = int32(about="How long a quota delayed the request, in ms.")
    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(
        nullable="0+", default=None, about="Explanation for people; null for success."
    )


@request(20009, "0", flexible="0+", response=AlterMirrorResponse)
class AlterMirrorRequest(Request[AlterMirrorResponse]):
    """Request to pause, resume, promote, delete or reconnect a mirror, to limit its rate, or to continue after lost
    records."""

    name: str = string(about="Name of the mirror.")
    action: int = int8(about="Action, a MirrorAction.")
    topics: list[str] = array(
        string, about="With ACCEPT_FAULTS: names of topics; empty: all topics of the mirror."
    )
    bootstrap_servers: str = string(
        about="With RECONNECT: addresses at which the source is first contacted; empty: unchanged."
    )
    options: list[MirrorOption] = array(MirrorOption, about="With RECONNECT: all options from now on.")
    bandwidth: int = int64(
        "0+",
        tag=0,
        about="With LIMIT: bytes per second that each broker may fetch from the source; 0: no limit.",
    )


@data()
class DescribedMirrorPartition(Message):
    """The copy of one partition: its offsets, its lag and its fault."""

    partition: int = int32(about="Partition index.")
    fault: int = int8(about="Kind of the fault: 0 none, 1 gap, 2 diverged, 3 recreated, 4 unreadable.")
    fault_first: int = int64(default=-1, about="First offset that the fault affects.")
    fault_end: int = int64(default=-1, about="Offset after the last one that the fault affects.")
    fault_reason: str = string(about="Explanation of the fault for people; empty without a fault.")
    promoted_epoch: int = int32(
        default=-1, about="First leader epoch that takes records of producers; -1 for none yet."
    )
    lineage: list[SourceEpoch] = array(
        SourceEpoch, about="Leader epochs of the source, up to where the partition was copied."
    )
    leader: int = int32(default=-1, about="Broker that leads the partition here; -1 for none.")
    is_told: bool = boolean(
        about="Whether the answering broker leads the partition, so that the following fields are set."
    )
    log_end_offset: int = int64(default=-1, about="Log end offset of the copy.")
    high_watermark: int = int64(default=-1, about="High watermark of the copy.")
    source_high_watermark: int = int64(
        default=-1, about="High watermark of the source when it was last asked; -1 unknown."
    )
    lag_bytes: int = int64(
        default=-1, about="Estimated number of bytes that are still to be copied; -1 unknown."
    )
    behind_ms: int = int64(
        default=-1, about="Time since the copy had all records that the source had, in ms; -1 unknown."
    )
    trouble: str = string(about="Reason why nothing can be fetched at the moment; empty if fetching works.")


@data()
class DescribedMirrorTopic(Message):
    """The copy of one topic of a mirror's source, with its partitions."""

    name: str = string(about="Name of the topic.")
    topic_id: bytes = uuid(about="Id of the topic here.")
    source_topic_id: bytes = uuid(about="Id of the topic at the source; zero if unknown.")
    partitions: list[DescribedMirrorPartition] = array(
        DescribedMirrorPartition, about="Partitions, by index."
    )


@data()
class SkippedTopic(Message):
    """A topic of a mirror's source that is not copied although its name matches, with the reason."""

    name: str = string(about="Name of the topic.")
    reason: str = string(about="Reason for people.")


@data()
class DescribedMirror(Message):
    """A mirror with the progress of its copies."""

    name: str = string(about="Name of the mirror.")
    source_cluster_id: str = string(about="Id of the cluster that is copied.")
    bootstrap_servers: str = string(about="Addresses at which that cluster is first contacted.")
    topics_pattern: str = string(about="Regular expression of topics.")
    groups_pattern: str = string(about="Regular expression of groups; empty: none.")
    start: int = int64(
        default=-2,
        about="Offset at which copies begin: -2 the start, -1 the end, otherwise a time in ms since 1970.",
    )
    phase: int = int8(about="1 active, 2 paused, 3 promoted.")
    options: list[MirrorOption] = array(MirrorOption, about="Options of the connections, without secrets.")
    trouble: str = string(
        about="Reason why the answering broker does not reach the source; empty if it does."
    )
    is_told: bool = boolean(about="Whether the answering broker maintains the list of topics.")
    skipped: list[SkippedTopic] = array(SkippedTopic, about="With `is_told`: topics that are not copied.")
    topics: list[DescribedMirrorTopic] = array(DescribedMirrorTopic, about="Copied topics, by name.")
    cut: int = int64(
        "0+",
        tag=0,
        default=-1,
        about="Newest cut that all copies have reached, a commit index of the source.",
    )
    cut_age_ms: int = int64(
        "0+", tag=1, default=-1, about="Time since the source reported that cut, in ms; -1 if there is none."
    )
    cuts_trouble: str = string(
        "0+",
        tag=2,
        about="With `is_told`: reason why the source reports no cuts at the moment; empty if it does.",
    )
    is_cut: bool = boolean("0+", tag=3, about="Whether the mirror was promoted at that cut.")
    behind_cut: list[CutTopic] = array(
        CutTopic, versions="0+", tag=4, about="Copies that have not reached the next cut yet."
    )
    bandwidth: int = int64(
        "0+", tag=5, about="Bytes per second that each broker may fetch from the source; 0: no limit."
    )
    acls: bool = boolean("0+", tag=6, about="Whether the mirror copies the ACLs of these topics and groups.")
    takes_offsets: bool = boolean(
        "0+", tag=7, about="Whether this cluster is still taking over the committed offsets as of the cut."
    )


@response(20010, "0", flexible="0+")
class DescribeMirrorsResponse(Message):
    """Answer to DescribeMirrorsRequest."""

    throttle_time_ms: int = int32(about="How long a quota delayed the request, in ms.")
    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(
        nullable="0+", default=None, about="Explanation for people; null for success."
    )
    mirrors: list[DescribedMirror] = array(DescribedMirror, about="Mirrors, by name.")


@request(20010, "0", flexible="0+", response=DescribeMirrorsResponse)
class DescribeMirrorsRequest(Request[DescribeMirrorsResponse]):
    """Request to describe mirrors. Each broker reports the progress of the partitions that it leads, so the client asks
    all brokers."""

    names: list[str] = array(string, about="Names of the mirrors to describe; empty: all.")

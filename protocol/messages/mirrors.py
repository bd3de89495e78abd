"""CreateMirror (20008), AlterMirror (20009) and DescribeMirrors (20010): copies of topics of another cluster.

APIs of Ottla's own, under keys that Kafka does not use. What a mirror is stands in docs/MIRRORS.md.
"""

from __future__ import annotations

from enum import IntEnum

from ..schema import (
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
    """What AlterMirror does."""

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
    error_message: str | None = string(nullable="0+", default=None, about="For people; null for success.")
    source_cluster_id: str = string(about="Id of the cluster that is copied.")


@request(20008, "0", flexible="0+", response=CreateMirrorResponse)
class CreateMirrorRequest(Request[CreateMirrorResponse]):
    """Begin to copy topics of another cluster, which the broker reaches once before it answers."""

    name: str = string(about="Of the mirror.")
    bootstrap_servers: str = string(about="Where the source is first asked: host:port, separated by commas.")
    topics: str = string(about="Regular expression (RE2) of whole names of topics.")
    groups: str = string(about="Regular expression (RE2) of whole names of groups; empty: none.")
    start: int = int64(
        default=-2, about="Where copies begin: -2 at the start, -1 at the end, else a time in ms."
    )
    options: list[MirrorOption] = array(MirrorOption, about="Options of the client that reaches the source.")
    validate_only: bool = boolean(about="Whether only to check.")
    bandwidth: int = int64(
        "0+", tag=0, about="Bytes/s that each broker may fetch from the source; 0: no limit."
    )
    acls: bool = boolean("0+", tag=1, about="Whether ACLs of these topics and groups follow.")


@response(20009, "0", flexible="0+")
class AlterMirrorResponse(Message):
    """Answer to AlterMirrorRequest."""

    throttle_time_ms: int = int32(about="How long a quota delayed the request, in ms.")
    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(nullable="0+", default=None, about="For people; null for success.")


@request(20009, "0", flexible="0+", response=AlterMirrorResponse)
class AlterMirrorRequest(Request[AlterMirrorResponse]):
    """Pause, resume, promote or delete a mirror, reconnect it, or go on behind records that are lost."""

    name: str = string(about="Of the mirror.")
    action: int = int8(about="See MirrorAction.")
    topics: list[str] = array(string, about="With ACCEPT_FAULTS: of which topics; empty: of all.")
    bootstrap_servers: str = string(about="With RECONNECT: where the source is asked; empty: as before.")
    options: list[MirrorOption] = array(MirrorOption, about="With RECONNECT: all options from now on.")
    bandwidth: int = int64(
        "0+", tag=0, about="With LIMIT: bytes/s that each broker may fetch from the source; 0: no limit."
    )


@data()
class DescribedMirrorPartition(Message):
    """One of the `partitions` of DescribedMirrorTopic."""

    partition: int = int32(about="Partition index.")
    fault: int = int8(about="0 none, 1 gap, 2 diverged, 3 made anew, 4 unreadable.")
    fault_first: int = int64(default=-1, about="First offset that the fault is about.")
    fault_end: int = int64(default=-1, about="The offset behind the last one.")
    fault_reason: str = string(about="For people; empty without a fault.")
    promoted_epoch: int = int32(default=-1, about="First leader epoch that takes records; -1 for none yet.")
    lineage: list[SourceEpoch] = array(SourceEpoch, about="Leader epochs of the source, as far as copied.")
    leader: int = int32(default=-1, about="Broker that leads the partition here; -1 for none.")
    is_told: bool = boolean(about="Whether the answering broker leads it, and tells the rest.")
    log_end_offset: int = int64(default=-1, about="Where the copy ends.")
    high_watermark: int = int64(default=-1, about="Up to where readers of the copy see it.")
    source_high_watermark: int = int64(default=-1, about="Of the source when it was last asked; -1 unknown.")
    lag_bytes: int = int64(default=-1, about="Bytes that are still to be copied, estimated; -1 unknown.")
    behind_ms: int = int64(default=-1, about="How long ago the copy had all that the source had; -1 unknown.")
    trouble: str = string(about="Why nothing can be fetched at the moment; empty if it can.")


@data()
class DescribedMirrorTopic(Message):
    """One of the `topics` of DescribedMirror."""

    name: str = string(about="Name.")
    topic_id: bytes = uuid(about="Id here.")
    source_topic_id: bytes = uuid(about="Id at the source; zero if unknown.")
    partitions: list[DescribedMirrorPartition] = array(DescribedMirrorPartition, about="By index.")


@data()
class SkippedTopic(Message):
    """One of the `skipped` of DescribedMirror."""

    name: str = string(about="Name of a topic of the source that is not copied.")
    reason: str = string(about="Why, for people.")


@data()
class DescribedMirror(Message):
    """One of the `mirrors` of DescribeMirrorsResponse."""

    name: str = string(about="Of the mirror.")
    source_cluster_id: str = string(about="Id of the cluster that is copied.")
    bootstrap_servers: str = string(about="Where it is first asked.")
    topics_pattern: str = string(about="Regular expression of topics.")
    groups_pattern: str = string(about="Regular expression of groups; empty: none.")
    start: int = int64(default=-2, about="-2 at the start, -1 at the end, else a time in ms.")
    phase: int = int8(about="1 active, 2 paused, 3 promoted.")
    options: list[MirrorOption] = array(MirrorOption, about="Of the connections; without secrets.")
    trouble: str = string(about="Why the answering broker does not reach the source; empty if it does.")
    is_told: bool = boolean(about="Whether the answering broker looks after the list of topics.")
    skipped: list[SkippedTopic] = array(SkippedTopic, about="With `is_told`: topics that are not copied.")
    topics: list[DescribedMirrorTopic] = array(DescribedMirrorTopic, about="That are copied, by name.")
    cut: int = int64(
        "0+",
        tag=0,
        default=-1,
        about="The newest cut that all copies have reached, a commit index of the source.",
    )
    cut_age_ms: int = int64(
        "0+", tag=1, default=-1, about="How long ago the source told that cut; -1 if there is none."
    )
    cuts_trouble: str = string(
        "0+", tag=2, about="With `is_told`: why the source tells no cuts at the moment; empty if it does."
    )
    is_cut: bool = boolean("0+", tag=3, about="Whether the mirror is promoted at that cut.")
    behind_cut: list[CutTopic] = array(
        CutTopic, versions="0+", tag=4, about="Copies that have not reached the next cut yet."
    )
    bandwidth: int = int64(
        "0+", tag=5, about="Bytes/s that each broker may fetch from the source; 0: no limit."
    )
    acls: bool = boolean("0+", tag=6, about="Whether ACLs of these topics and groups follow.")
    takes_offsets: bool = boolean(
        "0+", tag=7, about="Whether committed offsets as of the cut are still being taken over."
    )


@response(20010, "0", flexible="0+")
class DescribeMirrorsResponse(Message):
    """Answer to DescribeMirrorsRequest."""

    throttle_time_ms: int = int32(about="How long a quota delayed the request, in ms.")
    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(nullable="0+", default=None, about="For people; null for success.")
    mirrors: list[DescribedMirror] = array(DescribedMirror, about="By name.")


@request(20010, "0", flexible="0+", response=DescribeMirrorsResponse)
class DescribeMirrorsRequest(Request[DescribeMirrorsResponse]):
    """Ask for mirrors. Each broker tells the progress of the partitions that it leads, so all are asked."""

    names: list[str] = array(string, about="Of mirrors; empty: all.")

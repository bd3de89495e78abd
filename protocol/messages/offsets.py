"""OffsetCommit (8) and OffsetFetch (9): offsets of consumer groups."""

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


@data()
class OffsetCommitResponsePartition(Message):
    """One of the `partitions` of OffsetCommitResponseTopic."""

    partition_index: int = int32(about="Partition.")
    error_code: int = int16(about="Error code, 0 for success.")


@data()
class OffsetCommitResponseTopic(Message):
    """One of the `topics` of OffsetCommitResponse."""

    name: str = string("0-9", ignorable=True, about="Name of the topic.")
    topic_id: bytes = uuid("10+", ignorable=True, about="Id of the topic.")
    partitions: list[OffsetCommitResponsePartition] = array(
        OffsetCommitResponsePartition, about="Partitions concerned."
    )


@response(8, "1-10", flexible="8+")
class OffsetCommitResponse(Message):
    """Answer to OffsetCommitRequest."""

    throttle_time_ms: int = int32("3+", ignorable=True, about="How long a quota delayed the request, in ms.")
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic, about="Topics concerned.")


@data()
class OffsetCommitRequestPartition(Message):
    """One of the `partitions` of OffsetCommitRequestTopic."""

    partition_index: int = int32(about="Partition.")
    committed_offset: int = int64(about="Next offset to consume; -1 for none.")
    committed_leader_epoch: int = int32(
        "6+", default=-1, ignorable=True, about="Leader epoch of the last consumed record; -1 unknown."
    )
    commit_timestamp: int = int64("1", default=-1, about="Time of the commit in ms since 1970; -1 for now.")
    committed_metadata: str | None = string(
        nullable="0+", about="Whatever the client wants to keep with the offset."
    )


@data()
class OffsetCommitRequestTopic(Message):
    """One of the `topics` of OffsetCommitRequest."""

    name: str = string("0-9", ignorable=True, about="Name of the topic.")
    topic_id: bytes = uuid("10+", ignorable=True, about="Id of the topic.")
    partitions: list[OffsetCommitRequestPartition] = array(
        OffsetCommitRequestPartition, about="Partitions concerned."
    )


@request(8, "1-10", flexible="8+", response=OffsetCommitResponse)
class OffsetCommitRequest(Request[OffsetCommitResponse]):
    """Store offsets of a group."""

    group_id: str = string(about="Group.")
    generation_id_or_member_epoch: int = int32(
        "1+",
        default=-1,
        ignorable=True,
        about="Generation of a classic group, or the member's epoch; -1 without membership.",
    )
    member_id: str = string("1+", ignorable=True, about="Member of the group; empty for none.")
    group_instance_id: str | None = string(
        "7+",
        nullable="7+",
        default=None,
        about="Static member's lasting id; null for a dynamic member (KIP-345).",
    )
    retention_time_ms: int = int64(
        "2-4",
        default=-1,
        ignorable=True,
        about="How long to keep the offsets, in ms; -1 for the broker's setting.",
    )
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic, about="Topics concerned.")


@data()
class OffsetFetchResponsePartition(Message):
    """One of the `partitions` of OffsetFetchResponseTopic."""

    partition_index: int = int32("0-7", about="Partition.")
    committed_offset: int = int64("0-7", about="Next offset to consume; -1 for none.")
    committed_leader_epoch: int = int32(
        "5-7", default=-1, ignorable=True, about="Leader epoch of the last consumed record; -1 unknown."
    )
    metadata: str | None = string("0-7", nullable="0-7", about="What the client keeps with it.")
    error_code: int = int16("0-7", about="Error code, 0 for success.")


@data()
class OffsetFetchResponseTopic(Message):
    """One of the `topics` of OffsetFetchResponse."""

    name: str = string("0-7", about="Name of the topic.")
    partitions: list[OffsetFetchResponsePartition] = array(
        OffsetFetchResponsePartition, "0-7", about="Partitions concerned."
    )


@data()
class OffsetFetchResponsePartitions(Message):
    """One of the `partitions` of OffsetFetchResponseTopics."""

    partition_index: int = int32("8+", about="Partition.")
    committed_offset: int = int64("8+", about="Next offset to consume; -1 for none.")
    committed_leader_epoch: int = int32(
        "8+", default=-1, ignorable=True, about="Leader epoch of the last consumed record; -1 unknown."
    )
    metadata: str | None = string("8+", nullable="8+", about="What the client keeps with it.")
    error_code: int = int16("8+", about="Error code, 0 for success.")


@data()
class OffsetFetchResponseTopics(Message):
    """One of the `topics` of OffsetFetchResponseGroup."""

    name: str = string("8-9", ignorable=True, about="Name of the topic.")
    topic_id: bytes = uuid("10+", ignorable=True, about="Id of the topic.")
    partitions: list[OffsetFetchResponsePartitions] = array(
        OffsetFetchResponsePartitions, "8+", about="Partitions concerned."
    )


@data()
class OffsetFetchResponseGroup(Message):
    """One of the `groups` of OffsetFetchResponse."""

    group_id: str = string("8+", about="Group.")
    topics: list[OffsetFetchResponseTopics] = array(
        OffsetFetchResponseTopics, "8+", about="Topics concerned."
    )
    error_code: int = int16("8+", about="Error code, 0 for success.")


@response(9, "1-10", flexible="6+")
class OffsetFetchResponse(Message):
    """Answer to OffsetFetchRequest."""

    throttle_time_ms: int = int32("3+", ignorable=True, about="How long a quota delayed the request, in ms.")
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, "0-7", about="Topics concerned.")
    error_code: int = int16("2-7", ignorable=True, about="Error code, 0 for success.")
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, "8+", about="Groups concerned.")


@data()
class OffsetFetchRequestTopic(Message):
    """One of the `topics` of OffsetFetchRequest."""

    name: str = string("0-7", about="Name of the topic.")
    partition_indexes: list[int] = array(int32, "0-7", about="Partitions.")


@data()
class OffsetFetchRequestTopics(Message):
    """One of the `topics` of OffsetFetchRequestGroup."""

    name: str = string("8-9", ignorable=True, about="Name of the topic.")
    topic_id: bytes = uuid("10+", ignorable=True, about="Id of the topic.")
    partition_indexes: list[int] = array(int32, "8+", about="Partitions.")


@data()
class OffsetFetchRequestGroup(Message):
    """One of the `groups` of OffsetFetchRequest."""

    group_id: str = string("8+", about="Group.")
    member_id: str | None = string(
        "9+", nullable="9+", default=None, ignorable=True, about="Member of the group; empty for none."
    )
    member_epoch: int = int32(
        "9+", default=-1, ignorable=True, about="Epoch of the member (KIP-848); -1 without."
    )
    topics: list[OffsetFetchRequestTopics] | None = array(
        OffsetFetchRequestTopics, "8+", nullable="8+", about="Topics concerned."
    )


@request(9, "1-10", flexible="6+", response=OffsetFetchResponse)
class OffsetFetchRequest(Request[OffsetFetchResponse]):
    """Read offsets of a group; of several groups since version 8."""

    group_id: str = string("0-7", about="Group.")
    topics: list[OffsetFetchRequestTopic] | None = array(
        OffsetFetchRequestTopic, "0-7", nullable="2-7", about="Topics concerned."
    )
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, "8+", about="Groups concerned.")
    require_stable: bool = boolean(
        "7+", about="Whether to refuse while a transaction may still change the offsets."
    )

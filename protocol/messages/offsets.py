"""OffsetCommit (8) and OffsetFetch (9): committed offsets of consumer groups."""

from __future__ import annotations

from typing import Final

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

NO_GENERATION: Final = -1
"""The generation of a client that is not a member of the group."""


@data()
class OffsetCommitResponsePartition(Message):
    """Result for one partition."""

    partition_index: int = int32(about="Partition index.")
    error_code: int = int16(about="Error code, 0 for success.")


@data()
class OffsetCommitResponseTopic(Message):
    """Results for one topic."""

    name: str = string("0-9", ignorable=True, about="Name of the topic.")
    topic_id: bytes = uuid("10+", ignorable=True, about="Id of the topic.")
    partitions: list[OffsetCommitResponsePartition] = array(
        OffsetCommitResponsePartition, about="Partitions concerned."
    )


@response(8, "1-10", flexible="8+")
class OffsetCommitResponse(Message):
    """Answer to OffsetCommitRequest."""

    throttle_time_ms: int = int32("3+", ignorable=True, about="How long a quota delayed the request, in ms.")
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic, about="Results, by topic.")


@data()
class OffsetCommitRequestPartition(Message):
    """An offset to commit for one partition, with the leader epoch of its record and the client's metadata."""

    partition_index: int = int32(about="Partition index.")
    committed_offset: int = int64(about="Next offset to consume; -1 for none.")
    committed_leader_epoch: int = int32(
        "6+", default=-1, ignorable=True, about="Leader epoch of the last consumed record; -1 unknown."
    )
    commit_timestamp: int = int64("1", default=-1, about="Time of the commit in ms since 1970; -1 for now.")
    committed_metadata: str | None = string(
        nullable="0+", about="Metadata that the client stores with the offset; opaque."
    )


@data()
class OffsetCommitRequestTopic(Message):
    """Offsets to commit in one topic."""

    name: str = string("0-9", ignorable=True, about="Name of the topic.")
    topic_id: bytes = uuid("10+", ignorable=True, about="Id of the topic.")
    partitions: list[OffsetCommitRequestPartition] = array(
        OffsetCommitRequestPartition, about="Offsets to commit, by partition."
    )


@request(8, "1-10", flexible="8+", response=OffsetCommitResponse)
class OffsetCommitRequest(Request[OffsetCommitResponse]):
    """Request to commit offsets of a group."""

    group_id: str = string(about="Id of the group.")
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
        about="Time to keep the offsets, in ms; -1 for the broker's setting.",
    )
    topics: list[OffsetCommitRequestTopic] = array(
        OffsetCommitRequestTopic, about="Offsets to commit, by topic."
    )


@data()
class OffsetFetchResponsePartition(Message):
    """The committed offset of one partition."""

    partition_index: int = int32("0-7", about="Partition index.")
    committed_offset: int = int64("0-7", about="Next offset to consume; -1 for none.")
    committed_leader_epoch: int = int32(
        "5-7", default=-1, ignorable=True, about="Leader epoch of the last consumed record; -1 unknown."
    )
    metadata: str | None = string(
        "0-7", nullable="0-7", about="Metadata that the client stored with the offset; opaque."
    )
    error_code: int = int16("0-7", about="Error code, 0 for success.")


@data()
class OffsetFetchResponseTopic(Message):
    """Committed offsets of one topic."""

    name: str = string("0-7", about="Name of the topic.")
    partitions: list[OffsetFetchResponsePartition] = array(
        OffsetFetchResponsePartition, "0-7", about="Committed offsets, by partition."
    )


@data()
class OffsetFetchResponsePartitions(Message):
    """The committed offset of one partition, in versions that name groups."""

    partition_index: int = int32("8+", about="Partition index.")
    committed_offset: int = int64("8+", about="Next offset to consume; -1 for none.")
    committed_leader_epoch: int = int32(
        "8+", default=-1, ignorable=True, about="Leader epoch of the last consumed record; -1 unknown."
    )
    metadata: str | None = string(
        "8+", nullable="8+", about="Metadata that the client stored with the offset; opaque."
    )
    error_code: int = int16("8+", about="Error code, 0 for success.")


@data()
class OffsetFetchResponseTopics(Message):
    """Committed offsets of one topic, in versions that name groups."""

    name: str = string("8-9", ignorable=True, about="Name of the topic.")
    topic_id: bytes = uuid("10+", ignorable=True, about="Id of the topic.")
    partitions: list[OffsetFetchResponsePartitions] = array(
        OffsetFetchResponsePartitions, "8+", about="Committed offsets, by partition."
    )


@data()
class OffsetFetchResponseGroup(Message):
    """Committed offsets of one group."""

    group_id: str = string("8+", about="Id of the group.")
    topics: list[OffsetFetchResponseTopics] = array(
        OffsetFetchResponseTopics, "8+", about="Committed offsets, by topic."
    )
    error_code: int = int16("8+", about="Error code, 0 for success.")


@response(9, "1-10", flexible="6+")
class OffsetFetchResponse(Message):
    """Answer to OffsetFetchRequest."""

    throttle_time_ms: int = int32("3+", ignorable=True, about="How long a quota delayed the request, in ms.")
    topics: list[OffsetFetchResponseTopic] = array(
        OffsetFetchResponseTopic, "0-7", about="Committed offsets, by topic."
    )
    error_code: int = int16("2-7", ignorable=True, about="Error code, 0 for success.")
    groups: list[OffsetFetchResponseGroup] = array(
        OffsetFetchResponseGroup, "8+", about="Committed offsets, by group."
    )


@data()
class OffsetFetchRequestTopic(Message):
    """Partitions of a topic, whose offsets are asked for."""

    name: str = string("0-7", about="Name of the topic.")
    partition_indexes: list[int] = array(int32, "0-7", about="Partition indexes.")


@data()
class OffsetFetchRequestTopics(Message):
    """Partitions of one topic that are asked for, in versions that name groups."""

    name: str = string("8-9", ignorable=True, about="Name of the topic.")
    topic_id: bytes = uuid("10+", ignorable=True, about="Id of the topic.")
    partition_indexes: list[int] = array(int32, "8+", about="Partition indexes.")


@data()
class OffsetFetchRequestGroup(Message):
    """A group whose committed offsets are asked for."""

    group_id: str = string("8+", about="Id of the group.")
    member_id: str | None = string(
        "9+", nullable="9+", default=None, ignorable=True, about="Member of the group; empty for none."
    )
    member_epoch: int = int32(
        "9+", default=-1, ignorable=True, about="Epoch of the member (KIP-848); -1 without."
    )
    topics: list[OffsetFetchRequestTopics] | None = array(
        OffsetFetchRequestTopics, "8+", nullable="8+", about="Partitions, by topic; null for all."
    )


@request(9, "1-10", flexible="6+", response=OffsetFetchResponse)
class OffsetFetchRequest(Request[OffsetFetchResponse]):
    """Request for the committed offsets of a group; of several groups at once since version 8."""

    group_id: str = string("0-7", about="Id of the group.")
    topics: list[OffsetFetchRequestTopic] | None = array(
        OffsetFetchRequestTopic, "0-7", nullable="2-7", about="Partitions, by topic; null for all."
    )
    groups: list[OffsetFetchRequestGroup] = array(
        OffsetFetchRequestGroup, "8+", about="Groups whose offsets are asked for."
    )
    require_stable: bool = boolean(
        "7+", about="Whether to refuse while a transaction may still change the offsets."
    )

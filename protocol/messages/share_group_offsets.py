"""Start offsets of share groups (KIP-932): DescribeShareGroupOffsets (90), AlterShareGroupOffsets (91),
DeleteShareGroupOffsets (92)."""

from __future__ import annotations

from ..wire.schema import Message, Request, array, data, int16, int32, int64, request, response, string, uuid


@data()
class DescribedOffset(Message):
    """The start offset of a share-partition, or an error."""

    partition_index: int = int32(about="Partition index.")
    start_offset: int = int64(about="First offset whose delivery is not complete; -1 without one.")
    leader_epoch: int = int32(about="Leader epoch of the partition.")
    lag: int = int64(
        "1+",
        default=-1,
        ignorable=True,
        about="Number of records whose delivery is not complete; -1 unknown (KIP-1226).",
    )
    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(
        nullable="0+", default=None, about="Explanation for people; null without one."
    )


@data()
class DescribedTopic(Message):
    """Start offsets of one topic, by partition."""

    topic_name: str = string(about="Name of the topic.")
    topic_id: bytes = uuid(about="Id of the topic.")
    partitions: list[DescribedOffset] = array(DescribedOffset, about="Start offsets, by partition.")


@data()
class DescribedGroup(Message):
    """Start offsets of one share group, by topic."""

    group_id: str = string(about="Id of the group.")
    topics: list[DescribedTopic] = array(DescribedTopic, about="Start offsets, by topic.")
    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(
        nullable="0+", default=None, about="Explanation for people; null without one."
    )


@response(90, "0-1", flexible="0+")
class DescribeShareGroupOffsetsResponse(Message):
    """Answer to DescribeShareGroupOffsetsRequest."""

    throttle_time_ms: int = int32(about="How long a quota delayed the request, in ms.")
    groups: list[DescribedGroup] = array(DescribedGroup, about="Start offsets, by group.")


@data()
class WantedTopic(Message):
    """A topic whose start offsets are asked for."""

    topic_name: str = string(about="Name of the topic.")
    partitions: list[int] = array(int32, about="Partition indexes.")


@data()
class WantedGroup(Message):
    """A share group whose start offsets are asked for."""

    group_id: str = string(about="Id of the group.")
    topics: list[WantedTopic] | None = array(
        WantedTopic, nullable="0+", about="Topics wanted; null for all topics of the group."
    )


@request(90, "0-1", flexible="0+", response=DescribeShareGroupOffsetsResponse)
class DescribeShareGroupOffsetsRequest(Request[DescribeShareGroupOffsetsResponse]):
    """Request for the start offsets of share groups."""

    groups: list[WantedGroup] = array(WantedGroup, about="Groups wanted.")


@data()
class AlteredOffset(Message):
    """Result of the change of one start offset."""

    partition_index: int = int32(about="Partition index.")
    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(
        nullable="0+", default=None, about="Explanation for people; null without one."
    )


@data()
class AlteredTopic(Message):
    """Results of the changes of one topic's start offsets, by partition."""

    topic_name: str = string(about="Name of the topic.")
    topic_id: bytes = uuid(about="Id of the topic.")
    partitions: list[AlteredOffset] = array(AlteredOffset, about="Results, by partition.")


@response(91, "0", flexible="0+")
class AlterShareGroupOffsetsResponse(Message):
    """Answer to AlterShareGroupOffsetsRequest."""

    throttle_time_ms: int = int32(about="How long a quota delayed the request, in ms.")
    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(
        nullable="0+", default=None, about="Explanation for people; null without one."
    )
    responses: list[AlteredTopic] = array(AlteredTopic, about="Results, by topic.")


@data()
class NewOffset(Message):
    """A start offset that a share-partition gets."""

    partition_index: int = int32(about="Partition index.")
    start_offset: int = int64(about="First offset to deliver.")


@data()
class NewTopicOffsets(Message):
    """Start offsets that the share-partitions of one topic get."""

    topic_name: str = string(about="Name of the topic.")
    partitions: list[NewOffset] = array(NewOffset, about="Start offsets, by partition.")


@request(91, "0", flexible="0+", response=AlterShareGroupOffsetsResponse)
class AlterShareGroupOffsetsRequest(Request[AlterShareGroupOffsetsResponse]):
    """Request to change start offsets of a share group without members."""

    group_id: str = string(about="Id of the group.")
    topics: list[NewTopicOffsets] = array(NewTopicOffsets, about="Start offsets, by topic.")


@data()
class DeletedTopic(Message):
    """Result of the deletion of one topic's start offsets."""

    topic_name: str = string(about="Name of the topic.")
    topic_id: bytes = uuid(about="Id of the topic.")
    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(
        nullable="0+", default=None, about="Explanation for people; null without one."
    )


@response(92, "0", flexible="0+")
class DeleteShareGroupOffsetsResponse(Message):
    """Answer to DeleteShareGroupOffsetsRequest."""

    throttle_time_ms: int = int32(about="How long a quota delayed the request, in ms.")
    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(
        nullable="0+", default=None, about="Explanation for people; null without one."
    )
    responses: list[DeletedTopic] = array(DeletedTopic, about="Results, by topic.")


@data()
class UnwantedTopic(Message):
    """A topic whose start offsets are no longer needed."""

    topic_name: str = string(about="Name of the topic.")


@request(92, "0", flexible="0+", response=DeleteShareGroupOffsetsResponse)
class DeleteShareGroupOffsetsRequest(Request[DeleteShareGroupOffsetsResponse]):
    """Request to delete the start offsets of whole topics from a share group without members."""

    group_id: str = string(about="Id of the group.")
    topics: list[UnwantedTopic] = array(UnwantedTopic, about="Topics whose start offsets are deleted.")

"""OffsetDelete (47): removes committed offsets of a group (KIP-496)."""

from __future__ import annotations

from ..wire.schema import Message, Request, array, data, int16, int32, request, response, string


@data()
class OffsetDeleteResponsePartition(Message):
    """Result for one partition."""

    partition_index: int = int32(about="Partition index.")
    error_code: int = int16(about="Error code, 0 for success.")


@data()
class OffsetDeleteResponseTopic(Message):
    """Results for one topic."""

    name: str = string(about="Name of the topic.")
    partitions: list[OffsetDeleteResponsePartition] = array(
        OffsetDeleteResponsePartition, about="Partition indexes."
    )


@response(47, "0", flexible="none")
class OffsetDeleteResponse(Message):
    """Answer to OffsetDeleteRequest."""

    error_code: int = int16(about="Error code, 0 for success.")
    throttle_time_ms: int = int32(ignorable=True, about="How long a quota delayed the request, in ms.")
    topics: list[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic, about="Results, by topic.")


@data()
class OffsetDeleteRequestPartition(Message):
    """A partition whose committed offset is removed."""

    partition_index: int = int32(about="Partition index.")


@data()
class OffsetDeleteRequestTopic(Message):
    """Partitions of one topic whose committed offsets are removed."""

    name: str = string(about="Name of the topic.")
    partitions: list[OffsetDeleteRequestPartition] = array(
        OffsetDeleteRequestPartition, about="Partition indexes."
    )


@request(47, "0", flexible="none", response=OffsetDeleteResponse)
class OffsetDeleteRequest(Request[OffsetDeleteResponse]):
    """Request to remove the committed offsets of partitions."""

    group_id: str = string(about="Id of the group.")
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic, about="Partitions, by topic.")

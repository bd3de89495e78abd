"""OffsetDelete (47): forget committed offsets of a group (KIP-496)."""

from __future__ import annotations

from ..schema import Message, Request, array, data, int16, int32, request, response, string


@data()
class OffsetDeleteResponsePartition(Message):
    """One of the `partitions` of OffsetDeleteResponseTopic."""

    partition_index: int = int32(about="Partition.")
    error_code: int = int16(about="Error code, 0 for success.")


@data()
class OffsetDeleteResponseTopic(Message):
    """One of the `topics` of OffsetDeleteResponse."""

    name: str = string(about="Name of the topic.")
    partitions: list[OffsetDeleteResponsePartition] = array(
        OffsetDeleteResponsePartition, about="Partitions."
    )


@response(47, "0", flexible="none")
class OffsetDeleteResponse(Message):
    """Answer to OffsetDeleteRequest."""

    error_code: int = int16(about="Error code, 0 for success.")
    throttle_time_ms: int = int32(ignorable=True, about="How long a quota delayed the request, in ms.")
    topics: list[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic, about="Topics concerned.")


@data()
class OffsetDeleteRequestPartition(Message):
    """One of the `partitions` of OffsetDeleteRequestTopic."""

    partition_index: int = int32(about="Partition.")


@data()
class OffsetDeleteRequestTopic(Message):
    """One of the `topics` of OffsetDeleteRequest."""

    name: str = string(about="Name of the topic.")
    partitions: list[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition, about="Partitions.")


@request(47, "0", flexible="none", response=OffsetDeleteResponse)
class OffsetDeleteRequest(Request[OffsetDeleteResponse]):
    """Remove the committed offsets of partitions."""

    group_id: str = string(about="Group.")
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic, about="Topics concerned.")

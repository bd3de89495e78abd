"""ListOffsets (2): offsets by timestamp."""

from __future__ import annotations

from typing import Final

from ..wire.schema import Message, Request, array, data, int8, int16, int32, int64, request, response, string

EARLIEST: Final = -2
LATEST: Final = -1
"""Timestamps of requests that stand for the log start and the log end."""


@data()
class ListOffsetsPartitionResponse(Message):
    """The offset found in a partition."""

    partition_index: int = int32(about="Partition index.")
    error_code: int = int16(about="Error code, 0 for success.")
    old_style_offsets: list[int] = array(int64, "0", about="Offsets of segments; the oldest version only.")
    timestamp: int = int64(
        "1+", default=-1, about="Timestamp of the record found, in ms since 1970; -1 for none."
    )
    offset: int = int64("1+", default=-1, about="Offset; -1 for none.")
    leader_epoch: int = int32("4+", default=-1, about="Leader epoch; -1 unknown.")


@data()
class ListOffsetsTopicResponse(Message):
    """Offsets that were found in one topic, by partition."""

    name: str = string(about="Name of the topic.")
    partitions: list[ListOffsetsPartitionResponse] = array(
        ListOffsetsPartitionResponse, about="Partitions concerned."
    )


@response(2, "1-11", flexible="6+")
class ListOffsetsResponse(Message):
    """Answer to ListOffsetsRequest."""

    throttle_time_ms: int = int32("2+", ignorable=True, about="How long a quota delayed the request, in ms.")
    topics: list[ListOffsetsTopicResponse] = array(
        ListOffsetsTopicResponse, about="Offsets that were found, by topic."
    )


@data()
class ListOffsetsPartition(Message):
    """A partition, and the timestamp whose first offset is asked for (in ms since 1970, or a special value such as -1
    for the end)."""

    partition_index: int = int32(about="Partition index.")
    current_leader_epoch: int = int32(
        "4+", default=-1, ignorable=True, about="Leader epoch that the client knows; -1 for no check."
    )
    timestamp: int = int64(
        about="Time in ms since 1970; -1 asks for the end, -2 for the start, -3 for the highest timestamp."
    )
    max_num_offsets: int = int32("0", default=1, about="Number of offsets to return at most.")


@data()
class ListOffsetsTopic(Message):
    """Partitions of one topic to look up."""

    name: str = string(about="Name of the topic.")
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition, about="Partitions to look up.")


@request(2, "1-11", flexible="6+", response=ListOffsetsResponse)
class ListOffsetsRequest(Request[ListOffsetsResponse]):
    """Request for the first offsets whose records have at least the given timestamps."""

    replica_id: int = int32(about="Broker id of a follower; -1 for a consumer.")
    isolation_level: int = int8("2+", about="0 read uncommitted, 1 read committed.")
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic, about="Partitions to look up, by topic.")
    timeout_ms: int = int32("10+", ignorable=True, about="Time within which the broker has to answer, in ms.")

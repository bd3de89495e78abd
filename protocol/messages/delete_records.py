"""DeleteRecords (21): move the log start offset."""

from __future__ import annotations

from ..schema import Message, Request, array, data, int16, int32, int64, request, response, string


@data()
class DeleteRecordsPartitionResult(Message):
    """One of the `partitions` of DeleteRecordsTopicResult."""

    partition_index: int = int32(about="Partition.")
    low_watermark: int = int64(about="New log start offset.")
    error_code: int = int16(about="Error code, 0 for success.")


@data()
class DeleteRecordsTopicResult(Message):
    """One of the `topics` of DeleteRecordsResponse."""

    name: str = string(about="Name of the topic.")
    partitions: list[DeleteRecordsPartitionResult] = array(
        DeleteRecordsPartitionResult, about="Partitions concerned."
    )


@response(21, "0-2", flexible="2+")
class DeleteRecordsResponse(Message):
    """Answer to DeleteRecordsRequest."""

    throttle_time_ms: int = int32(about="How long a quota delayed the request, in ms.")
    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult, about="Topics concerned.")


@data()
class DeleteRecordsPartition(Message):
    """One of the `partitions` of DeleteRecordsTopic."""

    partition_index: int = int32(about="Partition.")
    offset: int = int64(about="Delete what lies before; -1 for all up to the high watermark.")


@data()
class DeleteRecordsTopic(Message):
    """One of the `topics` of DeleteRecordsRequest."""

    name: str = string(about="Name of the topic.")
    partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition, about="Partitions concerned.")


@request(21, "0-2", flexible="2+", response=DeleteRecordsResponse)
class DeleteRecordsRequest(Request[DeleteRecordsResponse]):
    """Delete records before an offset."""

    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic, about="Topics concerned.")
    timeout_ms: int = int32(about="How long the answer may be waited for, in ms.")

"""DeleteRecords (21): moves the log start offset forward."""

from __future__ import annotations

from ..wire.schema import Message, Request, array, data, int16, int32, int64, request, response, string


@data()
class DeleteRecordsPartitionResult(Message):
    """Result for one partition."""

    partition_index: int = int32(about="Partition index.")
    low_watermark: int = int64(about="New log start offset.")
    error_code: int = int16(about="Error code, 0 for success.")


@data()
class DeleteRecordsTopicResult(Message):
    """Results of one topic."""

    name: str = string(about="Name of the topic.")
    partitions: list[DeleteRecordsPartitionResult] = array(
        DeleteRecordsPartitionResult, about="Partitions concerned."
    )


@response(21, "0-2", flexible="2+")
class DeleteRecordsResponse(Message):
    """Answer to DeleteRecordsRequest."""

    throttle_time_ms: int = int32(about="How long a quota delayed the request, in ms.")
    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult, about="Results, by topic.")


@data()
class DeleteRecordsPartition(Message):
    """A partition whose records are deleted before an offset."""

    partition_index: int = int32(about="Partition index.")
    offset: int = int64(about="Offset before which records are deleted; -1: the high watermark.")


@data()
class DeleteRecordsTopic(Message):
    """Partitions of one topic to delete records from."""

    name: str = string(about="Name of the topic.")
    partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition, about="Partitions concerned.")


@request(21, "0-2", flexible="2+", response=DeleteRecordsResponse)
class DeleteRecordsRequest(Request[DeleteRecordsResponse]):
    """Request to delete the records before an offset."""

    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic, about="Topics to delete records from.")
    timeout_ms: int = int32(about="Time within which the broker has to answer, in ms.")

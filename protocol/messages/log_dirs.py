"""AlterReplicaLogDirs (34), DescribeLogDirs (35): the data folders of a broker (KIP-113)."""

from __future__ import annotations

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
)


@data()
class AlterReplicaLogDirPartitionResult(Message):
    """Result of the move of one replica."""

    partition_index: int = int32(about="Partition index.")
    error_code: int = int16(about="Error code, 0 for success.")


@data()
class AlterReplicaLogDirTopicResult(Message):
    """Results of the moves of one topic's replicas."""

    topic_name: str = string(about="Name of the topic.")
    partitions: list[AlterReplicaLogDirPartitionResult] = array(
        AlterReplicaLogDirPartitionResult, about="Partition indexes."
    )


@response(34, "1-2", flexible="2+")
class AlterReplicaLogDirsResponse(Message):
    """Answer to AlterReplicaLogDirsRequest."""

    throttle_time_ms: int = int32(about="How long a quota delayed the request, in ms.")
    results: list[AlterReplicaLogDirTopicResult] = array(
        AlterReplicaLogDirTopicResult, about="Results, by topic."
    )


@data()
class AlterReplicaLogDirTopic(Message):
    """Partitions of one topic whose replicas move to a data folder."""

    name: str = string(about="Name of the topic.")
    partitions: list[int] = array(int32, about="Partitions that move.")


@data()
class AlterReplicaLogDir(Message):
    """A data folder and the replicas that move there."""

    path: str = string(about="Absolute path of the data folder.")
    topics: list[AlterReplicaLogDirTopic] = array(
        AlterReplicaLogDirTopic, about="Replicas to move, by topic."
    )


@request(34, "1-2", flexible="2+", response=AlterReplicaLogDirsResponse)
class AlterReplicaLogDirsRequest(Request[AlterReplicaLogDirsResponse]):
    """Request to move replicas between the data folders of a broker."""

    dirs: list[AlterReplicaLogDir] = array(
        AlterReplicaLogDir, about="Data folders and the replicas that move there."
    )


@data()
class DescribeLogDirsPartition(Message):
    """A replica in a data folder."""

    partition_index: int = int32(about="Partition index.")
    partition_size: int = int64(about="Size of the log, in bytes.")
    offset_lag: int = int64(
        about="Offsets that the log lacks: up to the high watermark for a current log, up to the current log's end "
        "for a future log."
    )
    is_future_key: bool = boolean(
        about="Whether this is a future log, which will replace the current log when it has caught up."
    )


@data()
class DescribeLogDirsTopic(Message):
    """Replicas of one topic in a data folder."""

    name: str = string(about="Name of the topic.")
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition, about="Partition indexes.")


@data()
class DescribeLogDirsResult(Message):
    """A data folder with its replicas."""

    error_code: int = int16(about="Error code, 0 for success.")
    log_dir: str = string(about="Absolute path of the data folder.")
    topics: list[DescribeLogDirsTopic] = array(
        DescribeLogDirsTopic, about="Replicas in the folder, by topic."
    )
    total_bytes: int = int64(
        "4+", default=-1, ignorable=True, about="Size of the volume, in bytes; -1 unknown."
    )
    usable_bytes: int = int64(
        "4+", default=-1, ignorable=True, about="Free space of the volume, in bytes; -1 unknown."
    )
    is_cordoned: bool = boolean("5+", ignorable=True, about="Whether the folder takes no new replicas.")


@response(35, "1-5", flexible="2+")
class DescribeLogDirsResponse(Message):
    """Answer to DescribeLogDirsRequest."""

    throttle_time_ms: int = int32(about="How long a quota delayed the request, in ms.")
    error_code: int = int16("3+", ignorable=True, about="Error code, 0 for success.")
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult, about="Data folders of the broker.")


@data()
class DescribableLogDirTopic(Message):
    """Partitions of one topic to describe."""

    topic: str = string(about="Name of the topic.")
    partitions: list[int] = array(int32, about="Partitions to show.")


@request(35, "1-5", flexible="2+", response=DescribeLogDirsResponse)
class DescribeLogDirsRequest(Request[DescribeLogDirsResponse]):
    """Request for the data folders of a broker and the replicas in them."""

    topics: list[DescribableLogDirTopic] | None = array(
        DescribableLogDirTopic, nullable="0+", about="Topics to show; null for all."
    )

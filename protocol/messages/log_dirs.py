"""AlterReplicaLogDirs (34), DescribeLogDirs (35): the data folders of a broker (KIP-113)."""

from __future__ import annotations

from ..schema import Message, Request, array, boolean, data, int16, int32, int64, request, response, string


@data()
class AlterReplicaLogDirPartitionResult(Message):
    """One of the `partitions` of AlterReplicaLogDirTopicResult."""

    partition_index: int = int32(about="Partition.")
    error_code: int = int16(about="Error code, 0 for success.")


@data()
class AlterReplicaLogDirTopicResult(Message):
    """One of the `results` of AlterReplicaLogDirsResponse."""

    topic_name: str = string(about="Name of the topic.")
    partitions: list[AlterReplicaLogDirPartitionResult] = array(
        AlterReplicaLogDirPartitionResult, about="Partitions."
    )


@response(34, "1-2", flexible="2+")
class AlterReplicaLogDirsResponse(Message):
    """Answer to AlterReplicaLogDirsRequest."""

    throttle_time_ms: int = int32(about="How long a quota delayed the request, in ms.")
    results: list[AlterReplicaLogDirTopicResult] = array(
        AlterReplicaLogDirTopicResult, about="What became of each."
    )


@data()
class AlterReplicaLogDirTopic(Message):
    """One of the `topics` of AlterReplicaLogDir."""

    name: str = string(about="Name of the topic.")
    partitions: list[int] = array(int32, about="Partitions that move.")


@data()
class AlterReplicaLogDir(Message):
    """One of the `dirs` of AlterReplicaLogDirsRequest."""

    path: str = string(about="Absolute path of the data folder.")
    topics: list[AlterReplicaLogDirTopic] = array(AlterReplicaLogDirTopic, about="Topics concerned.")


@request(34, "1-2", flexible="2+", response=AlterReplicaLogDirsResponse)
class AlterReplicaLogDirsRequest(Request[AlterReplicaLogDirsResponse]):
    """Move replicas between the folders of a broker."""

    dirs: list[AlterReplicaLogDir] = array(AlterReplicaLogDir, about="Data folders and what moves there.")


@data()
class DescribeLogDirsPartition(Message):
    """One of the `partitions` of DescribeLogDirsTopic."""

    partition_index: int = int32(about="Partition.")
    partition_size: int = int64(about="Size of the log, in bytes.")
    offset_lag: int = int64(
        about="How far the log is behind: the high watermark for the log, its end for a future log."
    )
    is_future_key: bool = boolean(about="Whether this log is on its way to replace another.")


@data()
class DescribeLogDirsTopic(Message):
    """One of the `topics` of DescribeLogDirsResult."""

    name: str = string(about="Name of the topic.")
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition, about="Partitions.")


@data()
class DescribeLogDirsResult(Message):
    """One of the `results` of DescribeLogDirsResponse."""

    error_code: int = int16(about="Error code, 0 for success.")
    log_dir: str = string(about="Absolute path of the data folder.")
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic, about="Topics concerned.")
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
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult, about="What became of each.")


@data()
class DescribableLogDirTopic(Message):
    """One of the `topics` of DescribeLogDirsRequest."""

    topic: str = string(about="Name of the topic.")
    partitions: list[int] = array(int32, about="Partitions to show.")


@request(35, "1-5", flexible="2+", response=DescribeLogDirsResponse)
class DescribeLogDirsRequest(Request[DescribeLogDirsResponse]):
    """Show the folders of a broker and the replicas in them."""

    topics: list[DescribableLogDirTopic] | None = array(
        DescribableLogDirTopic, nullable="0+", about="Topics to show; null for all."
    )

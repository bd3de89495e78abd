"""DescribeLogDirs (1-5) and AlterReplicaLogDirs (1-2): the data folders of this broker (KIP-113, KIP-827)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

from ...protocol.cluster.acls import AclOperation
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from ..log import PartitionLog
from ..replication.replicas.folder_moves import FolderMoves
from ..security.authorization.needs import cluster
from ..server.handler import ClientRequest, handles
from ..storage.directory import LogDirectory
from ..storage.log_store import LogStore, TopicPartition

_LOGS_PER_TURN = 200
"""Number of logs that are described in one turn of the event loop: other requests have their turns between."""


def _alter_error(message: AlterReplicaLogDirsRequest, error: KafkaError) -> AlterReplicaLogDirsResponse:
    """Return the answer to a failed AlterReplicaLogDirs, with the error for each partition.

    `server.error_answers` cannot derive it from the schema, since a topic of several folders has one result.
    """
    partitions: dict[str, dict[int, None]] = {}
    for directory in message.dirs:
        for topic in directory.topics:
            partitions.setdefault(topic.name, {}).update(dict.fromkeys(topic.partitions))
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=name,
                partitions=[
                    AlterReplicaLogDirPartitionResult(partition_index=index, error_code=error.code)
                    for index in indexes
                ],
            )
            for name, indexes in partitions.items()
        ]
    )


class LogDirHandlers:
    """The handlers of DescribeLogDirs and AlterReplicaLogDirs, which answer for the data folders of this broker
    alone."""

    def __init__(self, logs: LogStore, moves: FolderMoves) -> None:
        self._logs = logs
        self._moves = moves

    @handles(DescribeLogDirsRequest, 1, 5, needs=cluster(AclOperation.DESCRIBE))
    async def describe(
        self, request: ClientRequest, message: DescribeLogDirsRequest
    ) -> DescribeLogDirsResponse:
        """Describe every folder, with its replicas of the topics that the request names."""
        wanted: set[TopicPartition] | None = None
        if message.topics is not None:
            wanted = {(topic.topic, index) for topic in message.topics for index in topic.partitions}
        results = [
            DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=_name(path))
            for path in self._logs.unopened
        ]
        results += [await self._describe(directory, wanted) for directory in self._logs.directories]
        return DescribeLogDirsResponse(results=results)

    async def _describe(
        self, directory: LogDirectory, wanted: set[TopicPartition] | None
    ) -> DescribeLogDirsResult:
        topics: dict[str, DescribeLogDirsTopic] = {}
        shown = 0
        for logs in (directory.logs, directory.futures):
            for key, log in list(logs.items()):
                if wanted is not None and key not in wanted:
                    continue
                shown += 1
                if shown % _LOGS_PER_TURN == 0:
                    await asyncio.sleep(0)
                if logs.get(key) is log:
                    topic = topics.setdefault(key[0], DescribeLogDirsTopic(name=key[0]))
                    topic.partitions.append(self._partition(directory, key, log))
        try:
            total, usable = await asyncio.to_thread(_room, directory.path)
        except OSError:
            total = usable = -1
        if directory.failure is not None:
            return DescribeLogDirsResult(
                error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=_name(directory.path)
            )
        return DescribeLogDirsResult(
            log_dir=_name(directory.path),
            topics=list(topics.values()),
            total_bytes=total,
            usable_bytes=usable,
            is_cordoned=directory.path in self._logs.cordoned,
        )

    def _partition(
        self, directory: LogDirectory, key: TopicPartition, log: PartitionLog
    ) -> DescribeLogDirsPartition:
        described = DescribeLogDirsPartition(partition_index=key[1], partition_size=log.size)
        if directory.futures.get(key) is log:
            described.is_future_key = True
            current = self._logs.directory_of(*key)
            end_offset = log.log_end_offset if current is None else current.logs[key].log_end_offset
            described.offset_lag = max(0, end_offset - log.log_end_offset)
        return described

    @handles(
        AlterReplicaLogDirsRequest,
        1,
        2,
        on_error=_alter_error,
        elements_max=6_000,
        needs=cluster(AclOperation.ALTER),
    )
    def alter(
        self, request: ClientRequest, message: AlterReplicaLogDirsRequest
    ) -> AlterReplicaLogDirsResponse:
        """Move each partition separately. A partition that is named twice goes to the last folder named, as in
        Kafka."""
        targets = {
            (topic.name, index): directory.path
            for directory in message.dirs
            for topic in directory.topics
            for index in topic.partitions
        }
        return AlterReplicaLogDirsResponse(results=self._altered(targets))

    def _altered(self, targets: Mapping[TopicPartition, str]) -> list[AlterReplicaLogDirTopicResult]:
        results: dict[str, AlterReplicaLogDirTopicResult] = {}
        for (topic, index), path in targets.items():
            error = ErrorCode.NONE
            try:
                self._moves.alter(topic, index, path)
            except KafkaError as refused:
                error = refused.code
            result = results.setdefault(topic, AlterReplicaLogDirTopicResult(topic_name=topic))
            result.partitions.append(
                AlterReplicaLogDirPartitionResult(partition_index=index, error_code=error)
            )
        return list(results.values())


def _name(path: Path) -> str:
    return str(path.absolute())


def _room(path: Path) -> tuple[int, int]:
    """Return the size of the volume that holds a folder, and the space that is free for this process, both in bytes."""
    found = os.statvfs(path)
    return found.f_frsize * found.f_blocks, found.f_frsize * found.f_bavail

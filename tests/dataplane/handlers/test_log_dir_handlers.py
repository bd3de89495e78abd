"""DescribeLogDirs and AlterReplicaLogDirs of one broker, and offline replicas in Metadata."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.dataplane.handlers.log_dirs import LogDirHandlers
from ottla.dataplane.log import LogConfig
from ottla.dataplane.runtime.clocks import wall_ms
from ottla.dataplane.storage.log_store import LogStore
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResult,
)

TOPIC = b"t" * 16
ASKED: Any = SimpleNamespace()


class Moves:
    """A recorder of requested moves that refuses partition 9."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, str]] = []

    def alter(self, topic: str, index: int, path: str) -> None:
        if index == 9:
            raise KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE, "not here")
        self.asked.append((topic, index, path))


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[LogStore]:
    """Return two folders with three partitions, and a folder that cannot be opened."""
    (tmp_path / "c").write_text("no folder")
    store = LogStore.open([tmp_path / name for name in "abc"], "cluster", 1, wall_ms)
    for index in range(3):
        store.create("t", TOPIC, index, LogConfig())
    yield store
    store.close(clean=False)


def described(
    logs: LogStore, topics: list[DescribableLogDirTopic] | None
) -> dict[str, DescribeLogDirsResult]:
    handlers = LogDirHandlers(logs, Moves())  # type: ignore[arg-type]
    answer = asyncio.run(handlers.describe(ASKED, DescribeLogDirsRequest(topics=topics)))
    return {Path(result.log_dir).name: result for result in answer.results}


def shown(result: DescribeLogDirsResult) -> dict[int, bool]:
    return {
        partition.partition_index: partition.is_future_key
        for topic in result.topics
        for partition in topic.partitions
    }


def test_all_folders_with_what_is_in_them(logs: LogStore, tmp_path: Path) -> None:
    logs.cordoned = frozenset({tmp_path / "b"})
    found = described(logs, None)
    assert found["a"].log_dir == str(tmp_path / "a")
    assert (shown(found["a"]), shown(found["b"])) == ({0: False, 2: False}, {1: False})
    room = os.statvfs(tmp_path)
    assert found["a"].total_bytes == room.f_frsize * room.f_blocks
    assert 0 < found["a"].usable_bytes <= found["a"].total_bytes
    assert [found[name].is_cordoned for name in "ab"] == [False, True]
    assert (found["c"].error_code, found["c"].topics) == (ErrorCode.KAFKA_STORAGE_ERROR, [])


def test_a_future_log_is_told_apart(logs: LogStore) -> None:
    logs.directories[1].create_future("t", 0, TOPIC, LogConfig(), now_ms=wall_ms())
    logs.directories[0].logs["t", 0].truncation.truncate_fully_and_start_at(7)
    found = described(logs, None)
    assert shown(found["b"]) == {1: False, 0: True}
    (future,) = [partition for partition in found["b"].topics[0].partitions if partition.is_future_key]
    assert future.offset_lag == 7


def test_only_what_is_asked_for(logs: LogStore) -> None:
    wanted = [DescribableLogDirTopic(topic="t", partitions=[0, 5]), DescribableLogDirTopic(topic="unknown")]
    found = described(logs, wanted)
    assert (shown(found["a"]), shown(found["b"])) == ({0: False}, {})


def test_a_folder_that_fails_says_so(logs: LogStore) -> None:
    logs.directories[0].fail(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "it broke"))
    found = described(logs, None)
    assert (found["a"].error_code, found["a"].topics) == (ErrorCode.KAFKA_STORAGE_ERROR, [])
    assert found["b"].error_code == 0


def test_each_partition_has_its_own_answer(logs: LogStore) -> None:
    moves = Moves()
    handlers = LogDirHandlers(logs, moves)  # type: ignore[arg-type]
    request = AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(path="/a", topics=[AlterReplicaLogDirTopic(name="t", partitions=[0, 9])]),
            AlterReplicaLogDir(path="/b", topics=[AlterReplicaLogDirTopic(name="u", partitions=[1])]),
        ]
    )
    answer = handlers.alter(ASKED, request)
    assert {
        (topic.topic_name, partition.partition_index): partition.error_code
        for topic in answer.results
        for partition in topic.partitions
    } == {("t", 0): 0, ("t", 9): ErrorCode.REPLICA_NOT_AVAILABLE, ("u", 1): 0}
    assert moves.asked == [("t", 0, "/a"), ("u", 1, "/b")]

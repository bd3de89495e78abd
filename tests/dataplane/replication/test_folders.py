"""Several data folders: one fails, one is missing at the start, replicas move between them."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
import struct
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from ottla.dataplane.assembly.storage_failures import StorageFailures
from ottla.dataplane.log import LogConfig, PartitionLog
from ottla.dataplane.replication.fetch_codec import to_send
from ottla.dataplane.replication.fetch_values import PartitionKey
from ottla.dataplane.replication.leader.isr_updates import Outcome
from ottla.dataplane.replication.replica.partition import Partition
from ottla.dataplane.replication.replica.settings import ReplicationSettings, TopicSettings
from ottla.dataplane.replication.replicas.folder_moves import FolderMoves
from ottla.dataplane.replication.replicas.offline import OfflineReplicas
from ottla.dataplane.replication.replicas.replicas import Replicas, ReplicasConfig
from ottla.dataplane.runtime.clocks import wall_ms
from ottla.dataplane.storage.directory import LogDirectory
from ottla.dataplane.storage.log_store import LogStore
from ottla.protocol.cluster.cluster_image import ClusterImage
from ottla.protocol.cluster.image_delta import ImageDelta
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.metadata_records import PartitionRecord, Record, TopicRecord, TopicRemovedRecord
from ottla.protocol.records.record_batch import walk_batches
from tests.node_credentials import credentials

from .harness import batch

TOPIC = b"t" * 16
ASSIGNED = {("t", index): TOPIC for index in range(4)}
DEADLINE_S = 60


async def _no_isr_changes(_proposals: Sequence[object]) -> Sequence[Outcome]:
    await asyncio.Event().wait()
    return ()


class Broker:
    """Broker 1 with two folders, without a server; `reports` are its reports to the quorum."""

    def __init__(self, paths: Sequence[Path], settings: TopicSettings, rate: float) -> None:
        self.reports: list[PartitionKey] = []
        self.image = ClusterImage()
        self.rate = rate
        self.logs = LogStore.open(paths, "cluster", 1, wall_ms)
        self.logs.on_failure = lambda _: self.folder_failed()
        self.replicas = Replicas(
            ReplicasConfig(credentials(1), "BROKER"),
            self.logs,
            self.image,
            lambda _: settings,
            _no_isr_changes,
            lambda: 7,
            self._report,
        )
        self.moves = FolderMoves(self.replicas, self.logs, lambda: self.rate, wall_ms)

    async def _report(self, keys: Sequence[PartitionKey]) -> None:
        self.reports += keys

    def folder_failed(self) -> None:
        self.replicas.take_offline([(TOPIC, index) for _, index in self.logs.let_failed_go()])

    def push(self, *records: Record) -> None:
        delta = ImageDelta()
        for record in records:
            delta.note(record)
            self.image.apply(record)
        self.replicas.image_changed(self.image, delta)

    def create(self, partitions: int, first: int = 0) -> None:
        if not first:
            self.push(TopicRecord(topic_id=TOPIC, name="t"))
        for index in range(first, first + partitions):
            self.push(PartitionRecord(topic_id=TOPIC, partition=index, replicas=[1], isr=[1], leader=1))

    def produce(self, index: int, count: int, size: int = 1) -> None:
        for number in range(count):
            value = b"%d" % number
            self.replicas.get("t", index).append(memoryview(batch(value.ljust(size, b"."))), required_acks=1)

    def folder(self, index: int) -> LogDirectory:
        found = self.logs.directory_of("t", index)
        assert found is not None
        return found

    def other(self, index: int) -> LogDirectory:
        return next(directory for directory in self.logs.directories if directory is not self.folder(index))

    def move(self, index: int) -> LogDirectory:
        target = self.other(index)
        self.moves.alter("t", index, str(target.path))
        return target

    def content(self, index: int) -> bytes:
        log = self.replicas.get("t", index).log
        offset, found = log.log_start_offset, b""
        while offset < log.log_end_offset:
            piece = log.read(offset, 1 << 20, log.log_end_offset, at_least_one=True)
            found += piece.read()
            piece.release()
            offset = _next_offset(found)
        return found


def _next_offset(batches: bytes) -> int:
    return max(header.next_offset for _, header in walk_batches(batches))


@contextlib.asynccontextmanager
async def broker(
    directory: Path, *, clean: bool = True, rate: float = float("inf"), durable: bool = False
) -> AsyncIterator[Broker]:
    paths = [directory / "a", directory / "b"]
    made = Broker(
        paths,
        TopicSettings(
            LogConfig(segment_bytes=1 << 20), ReplicationSettings(durable_before_acknowledged=durable)
        ),
        rate,
    )
    try:
        yield made
    finally:
        await made.moves.close()
        await made.replicas.close()
        made.logs.close(clean=clean, broker_epoch=7)


async def until(condition: Callable[[], object], what: str) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.001)
    assert condition(), what


def code(call: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        call()
    return refused.value.code


async def test_only_the_folder_that_fails_goes_offline(tmp_path: Path) -> None:
    async with broker(tmp_path) as host:
        host.create(4)
        lost = host.folder(0)
        indexes = sorted(index for _, index in lost.logs)
        error = OSError(errno.EIO, os.strerror(errno.EIO))
        with mock.patch("os.pwrite", side_effect=error):
            assert code(lambda: host.produce(0, 1)) is ErrorCode.KAFKA_STORAGE_ERROR
        assert indexes == [0, 2]
        for index in indexes:
            assert code(lambda index=index: host.replicas.get("t", index)) is ErrorCode.KAFKA_STORAGE_ERROR  # type: ignore[misc]
        await host.replicas.offline.reported()
        assert sorted(host.reports) == [(TOPIC, 0), (TOPIC, 2)]
        host.produce(1, 1)
        host.create(1, first=4)
        assert host.folder(4) is not lost
        host.push(
            PartitionRecord(topic_id=TOPIC, partition=0, replicas=[1], isr=[1], leader=1, leader_epoch=1)
        )
        assert code(lambda: host.replicas.get("t", 0)) is ErrorCode.KAFKA_STORAGE_ERROR
    again = LogStore.open([tmp_path / "a", tmp_path / "b"], "cluster", 1, wall_ms)
    assert again.previous_broker_epoch == -1
    again.close(clean=False)


async def test_a_replica_that_moved_away_and_back_is_made_anew(tmp_path: Path) -> None:
    async with broker(tmp_path) as host:
        host.create(2)
        host.replicas.take_offline([(TOPIC, 0)])
        host.logs.directory_of("t", 0)
        host.push(PartitionRecord(topic_id=TOPIC, partition=0, replicas=[2], isr=[2], leader=2))
        host.push(PartitionRecord(topic_id=TOPIC, partition=0, replicas=[2, 1], isr=[2], leader=2))
        assert host.replicas.get("t", 0).follower is not None


async def test_a_replica_that_moved_away_and_back_in_one_change_is_reported_again(tmp_path: Path) -> None:
    """The quorum has forgotten that the replica is offline, and might elect it with missing records."""
    async with broker(tmp_path) as host:
        host.create(1)
        host.replicas.take_offline([(TOPIC, 0)])
        await host.replicas.offline.reported()
        state: dict[str, Any] = {"topic_id": TOPIC, "partition": 0, "leader": 2}
        host.push(PartitionRecord(replicas=[2, 1], isr=[2], offline_replicas=[1], **state))
        await host.replicas.offline.reported()
        assert host.reports == [(TOPIC, 0)]
        host.push(
            PartitionRecord(replicas=[2], isr=[2], **state),
            PartitionRecord(replicas=[2, 1], isr=[2], **state),
        )
        await host.replicas.offline.reported()
        assert host.reports == [(TOPIC, 0)] * 2


async def test_what_a_missing_folder_held_is_not_made_anew(tmp_path: Path) -> None:
    async with broker(tmp_path) as host:
        host.create(4)
        held = set(host.folder(0).logs)
        gone = host.folder(0).path
    shutil.move(gone, tmp_path / "away")
    gone.write_text("no folder")
    async with broker(tmp_path) as host:
        assert [str(path) for path in host.logs.unopened] == [str(gone)]
        assert host.logs.previous_broker_epoch == -1
        assert set(host.logs.missing(ASSIGNED)) == held
        host.replicas.take_offline([(TOPIC, index) for _, index in host.logs.missing(ASSIGNED)])
        host.create(4)
        assert sorted(host.replicas.offline) == sorted((TOPIC, index) for _, index in held)
        assert not any((path / "t-0").exists() for path in (tmp_path / "a", tmp_path / "b"))
        assert code(lambda: host.moves.alter("t", 1, str(gone))) is ErrorCode.KAFKA_STORAGE_ERROR


async def test_what_a_folder_held_that_fails_before_there_is_an_image_is_not_made_anew(
    tmp_path: Path,
) -> None:
    """A broker may wait long for its quorum, and write checkpoints meanwhile.

    After a clean stop the quorum takes its replicas for complete: empty ones would lead, and the others follow them.
    """
    async with broker(tmp_path) as host:
        host.create(4)
        host.produce(0, 3)
        held = set(host.folder(0).logs)
    async with broker(tmp_path) as host:
        assert host.logs.missing(ASSIGNED) == []
        image = ClusterImage()
        failures = StorageFailures(host.logs, host.replicas, lambda: image)
        host.folder(0).fail(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "it broke"))
        await until(lambda: host.logs.directory_of("t", 0) is None, "the folder to be let go")
        assert failures.fatal is None
        assert host.logs.missing(dict.fromkeys(ASSIGNED, b"another topic id")) == []
        assert set(host.logs.missing(ASSIGNED)) == held
        host.replicas.take_offline([(TOPIC, index) for _, index in host.logs.missing(ASSIGNED)])
        host.create(4)
        assert code(lambda: host.replicas.get("t", 0)) is ErrorCode.KAFKA_STORAGE_ERROR
        assert host.replicas.get("t", 1).log.log_end_offset == 0


async def test_all_folders_away_is_an_error_that_names_one(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text("no folder")
    with pytest.raises(KafkaError, match=str(tmp_path / "a")):
        LogStore.open([tmp_path / "a", tmp_path / "b"], "cluster", 1, wall_ms)


async def test_another_nodes_folder_is_a_mistake_even_beside_a_good_one(tmp_path: Path) -> None:
    LogStore.open([tmp_path / "b"], "cluster", 2, wall_ms).close(clean=True)
    with pytest.raises(KafkaError) as refused:
        LogStore.open([tmp_path / "a", tmp_path / "b"], "cluster", 1, wall_ms)
    assert refused.value.code is ErrorCode.INCONSISTENT_CLUSTER_ID
    LogStore.open([tmp_path / "a"], "cluster", 1, wall_ms).close(clean=True)  # The folder was unlocked.


@pytest.mark.parametrize("durable", [False, True])
async def test_a_replica_moves_while_it_is_written_to(tmp_path: Path, *, durable: bool) -> None:
    async with broker(tmp_path, durable=durable) as host:
        host.create(2)
        host.produce(0, 50, 60_000)
        source, target = host.folder(0), host.move(0)
        before = host.replicas.get("t", 0)
        count = 50
        async with asyncio.timeout(DEADLINE_S):
            while host.folder(0) is source:
                host.produce(0, 1)
                count += 1
                await asyncio.sleep(0)
        host.produce(0, 5)
        partition = host.replicas.get("t", 0)
        assert partition is before
        assert partition.log.directory == target.path / "t-0"
        assert partition.log.log_end_offset == count + 5
        assert len(host.content(0)) == partition.log.size
        await until(lambda: partition.high_watermark == count + 5, "the high watermark")
        await until(lambda: not list(source.path.glob("t-0*")), "the old folder to go")
        content = host.content(0)
    async with broker(tmp_path) as host:
        host.create(2)
        assert host.folder(0).path == target.path
        assert host.content(0) == content


async def test_a_truncation_in_the_middle_reaches_the_copy(tmp_path: Path) -> None:
    async with broker(tmp_path, rate=1e6) as host:
        # With a second member of the ISR that has nothing yet, nothing is committed that a cut could not take.
        both = {"topic_id": TOPIC, "replicas": [1, 2], "isr": [1, 2], "leader": 1}
        host.push(TopicRecord(topic_id=TOPIC, name="t"), PartitionRecord(partition=0, **both))
        host.produce(0, 20, 60_000)
        target = host.move(0)
        await until(lambda: target.futures and target.futures["t", 0].log_end_offset > 15, "most of the copy")
        partition = host.replicas.get("t", 0)
        partition.log.truncation.truncate_to(10)
        host.push(PartitionRecord(partition=0, leader_epoch=1, **both))
        host.produce(0, 20)
        expected = host.content(0)
        host.rate = float("inf")
        await until(lambda: host.folder(0) is target, "the move")
        assert host.content(0) == expected
        assert partition.log.leader_epochs.entries == ((0, 0), (1, 10))


async def test_records_trimmed_in_the_middle_stay_hidden(tmp_path: Path) -> None:
    async with broker(tmp_path, rate=1e6) as host:
        host.create(2)
        host.produce(0, 20, 60_000)
        target = host.move(0)
        await until(lambda: target.futures and target.futures["t", 0].log_end_offset > 2, "some of the copy")
        host.replicas.get("t", 0).log.advance_log_start_offset(12)
        host.rate = float("inf")
        await until(lambda: host.folder(0) is target, "the move")
        assert host.replicas.get("t", 0).log.log_start_offset == 12
        assert host.replicas.get("t", 0).log.log_end_offset == 20


async def test_a_rate_that_is_raised_holds_for_what_waits_already(tmp_path: Path) -> None:
    async with broker(tmp_path, rate=1) as host:
        host.create(2)
        host.produce(0, 20, 60_000)
        target = host.move(0)
        await until(lambda: target.futures and target.futures["t", 0].log_end_offset > 2, "some of the copy")
        host.rate = float("inf")
        await until(lambda: host.folder(0) is target, "the move")


@pytest.mark.parametrize("size", [100, 60_000])
async def test_a_log_whose_file_was_cut_short_does_not_move(
    tmp_path: Path, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with broker(tmp_path) as host:
        host.create(2)
        host.produce(0, 5, size)
        source, log = host.folder(0), host.replicas.get("t", 0).log
        os.truncate(log.segments[-1].path, 200)
        target = host.move(0)
        await until(lambda: "does not move" in caplog.text, "the move to end")
        assert host.folder(0) is source
        assert not target.futures


async def test_a_deletion_in_the_middle_ends_the_move(tmp_path: Path) -> None:
    async with broker(tmp_path, rate=1e4) as host:
        host.create(2)
        host.produce(0, 20, 60_000)
        target = host.move(0)
        await until(lambda: target.futures, "the move to begin")
        host.push(TopicRemovedRecord(topic_id=TOPIC))
        await until(lambda: not target.futures, "the move to end")
        await until(lambda: not list(target.path.glob("t-0*")), "its traces to go")


async def test_the_target_fails_in_the_middle(tmp_path: Path) -> None:
    async with broker(tmp_path, rate=1e4) as host:
        host.create(2)
        host.produce(0, 20, 60_000)
        target = host.move(0)
        await until(lambda: target.futures, "the move to begin")
        target.fail(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "it broke"))
        host.produce(0, 1)
        await host.moves.close()
        assert host.replicas.get("t", 0).log.log_end_offset == 21


async def test_the_old_log_stays_if_the_target_fails_before_the_new_one_is_durable(tmp_path: Path) -> None:
    async with broker(tmp_path) as host:
        host.create(2)
        host.produce(0, 5)
        source, target = host.folder(0), host.move(0)
        partition = host.replicas.get("t", 0)
        take_over = type(partition).replace_log

        def fails_right_then(moved: Partition, log: PartitionLog) -> None:
            take_over(moved, log)
            target.fail(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "it broke"))

        with mock.patch.object(type(partition), "replace_log", fails_right_then):
            await until(lambda: target.failure, "the swap")
            await host.moves.close()
        assert [path.name for path in source.path.glob("t-0*")] == ["t-0"]
    shutil.rmtree(tmp_path / "b" if source.path.name == "a" else tmp_path / "a")
    async with broker(tmp_path, clean=False) as host:
        host.create(2)
        assert host.replicas.get("t", 0).log.log_end_offset == 5


async def test_a_topic_made_anew_right_after_the_swap_keeps_its_log(tmp_path: Path) -> None:
    """The previous topic's old log is still about to be deleted, under the same name."""
    async with broker(tmp_path) as host:
        host.create(2)
        host.produce(0, 5)
        source, target = host.folder(0), host.move(0)
        partition = host.replicas.get("t", 0)
        take_over = type(partition).replace_log
        another = b"u" * 16
        state: dict[str, Any] = {"partition": 0, "replicas": [1], "isr": [1], "leader": 1}

        def deleted_right_then(moved: Partition, log: PartitionLog) -> None:
            take_over(moved, log)
            host.logs.cordoned = frozenset([target.path])
            asyncio.get_running_loop().call_soon(
                host.push,
                TopicRemovedRecord(topic_id=TOPIC),
                TopicRecord(topic_id=another, name="t"),
                PartitionRecord(topic_id=another, **state),
            )

        with mock.patch.object(type(partition), "replace_log", deleted_right_then):
            await until(lambda: host.logs.directory_of("t", 0) is not source, "the swap")
        await until(lambda: another in host.image.topics_by_id, "the new topic")
        await until(lambda: not host.moves._moves, "the end of the move")
        host.replicas.making.look_for_missing_logs()  # The move may have flushed the log of that name until now.
        host.produce(0, 3)
        made = host.folder(0).path / "t-0"
        assert host.replicas.get("t", 0).log.log_end_offset == 3
        assert made.exists()
        assert host.replicas.get("t", 0).log.directory == made


async def test_a_source_that_cannot_be_read_does_not_take_the_target_offline(tmp_path: Path) -> None:
    async with broker(tmp_path) as host:
        host.create(2)
        host.produce(0, 5)
        source, target = host.folder(0), host.other(0)
        broken = OSError(errno.EIO, "it broke")
        real_open = os.open

        def refused(path: object, *args: object, **kwargs: object) -> int:
            if str(path).startswith(str(source.path / "t-0")):
                raise broken
            return real_open(path, *args, **kwargs)  # type: ignore[arg-type]

        log = host.replicas.get("t", 0).log
        log.roll(wall_ms())
        host.produce(0, 1)
        with mock.patch.object(os, "open", refused):
            host.move(0)
            await until(lambda: source.failure, "the failure")
            await until(lambda: not target.futures, "the move to end")
        assert target.failure is None


async def test_a_log_that_ends_with_offsets_left_out_moves(tmp_path: Path) -> None:
    """Such a log results from cutting a compacted log."""
    async with broker(tmp_path) as host:
        both = {"topic_id": TOPIC, "replicas": [1, 2], "isr": [1, 2], "leader": 2}
        host.push(TopicRecord(topic_id=TOPIC, name="t"), PartitionRecord(partition=0, **both))
        log = host.replicas.get("t", 0).log
        for offset in (0, 1, 9, 10):
            data = batch(b"x")
            struct.pack_into(">q", data, 0, offset)
            struct.pack_into(">i", data, 12, 0)  # leader epoch
            log.append_as_follower(memoryview(data), wall_ms())
        log.truncation.truncate_to(8)
        target = host.move(0)
        await until(lambda: host.folder(0) is target, "the move")
        moved = host.replicas.get("t", 0).log
        assert (moved.log_start_offset, moved.log_end_offset) == (0, 8)
    async with broker(tmp_path) as host:
        host.push(TopicRecord(topic_id=TOPIC, name="t"), PartitionRecord(partition=0, **both))
        moved = host.replicas.get("t", 0).log
        assert (moved.log_start_offset, moved.log_end_offset) == (0, 8)


async def test_a_start_takes_an_interrupted_move_up_again(tmp_path: Path) -> None:
    async with broker(tmp_path, rate=1e4) as host:
        host.create(2)
        host.produce(0, 20, 60_000)
        target = host.move(0).path
        await until(lambda: list(target.glob("t-0.*-future")), "the move to begin")
        content = host.content(0)
    async with broker(tmp_path, clean=False) as host:
        host.create(2)
        host.moves.resume()
        await until(lambda: host.folder(0).path == target, "the move")
        assert host.content(0) == content
        await until(lambda: not list(target.glob("*-future")), "the old copy to go")


async def test_an_interrupted_move_waits_for_its_replica_to_be_made(tmp_path: Path) -> None:
    """A start with thousands of replicas makes a few in each turn of the loop."""
    async with broker(tmp_path, rate=1e4) as host:
        host.create(40)
        await until(lambda: host.replicas.find("t", 39), "the last replica")
        host.produce(39, 20, 60_000)
        target = host.move(39).path
        await until(lambda: list(target.glob("t-39.*-future")), "the move to begin")
        content = host.content(39)
    async with broker(tmp_path, clean=False) as host:
        host.create(40)
        assert host.replicas.find("t", 39) is None
        host.moves.resume()
        await until(lambda: host.replicas.find("t", 39), "the last replica")
        await until(lambda: host.folder(39).path == target, "the move")
        assert host.content(39) == content


async def test_the_log_further_along_is_kept_of_two(tmp_path: Path) -> None:
    async with broker(tmp_path) as host:
        host.create(1)
        host.produce(0, 3)
        source, other = host.folder(0).path, host.other(0).path
        shutil.copytree(source / "t-0", other / "t-0")
        host.produce(0, 4)
    async with broker(tmp_path) as host:
        host.create(1)
        assert host.folder(0).path == source
        assert host.replicas.get("t", 0).log.log_end_offset == 7
        assert len(list(other.glob("t-0.*-stray"))) == 1


@pytest.mark.parametrize("trimmed", ["a", "b"])
async def test_what_was_deleted_from_one_of_two_logs_stays_deleted(tmp_path: Path, trimmed: str) -> None:
    async with broker(tmp_path) as host:
        host.create(2)
        host.produce(0, 5)
        host.produce(1, 5)
        index = 0 if host.folder(0).path.name == trimmed else 1
        source, other = host.folder(index).path, host.other(index).path
        log = host.replicas.get("t", index).log
        log.flush()
        shutil.copytree(source / f"t-{index}", other / f"t-{index}")
        log.advance_log_start_offset(3)
    async with broker(tmp_path) as host:
        host.create(2)
        log = host.replicas.get("t", index).log
        assert (log.log_start_offset, log.log_end_offset) == (3, 5)


async def test_a_log_in_a_folder_that_fails_right_now_is_not_made_anew(tmp_path: Path) -> None:
    """The folder may fail in another thread before its replicas exist; the loop learns of it a turn later."""
    async with broker(tmp_path) as host:
        host.create(1)
        host.produce(0, 5)
        failed = host.folder(0).path
    async with broker(tmp_path) as host:
        directory = next(found for found in host.logs.directories if found.path == failed)
        directory.on_failure = None
        cause = OSError(errno.EIO, "it broke")
        failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "it broke")
        failure.__cause__ = cause
        directory.fail(failure)
        host.create(1)
        assert host.replicas.find("t", 0) is None
        host.folder_failed()
        await host.replicas.offline.reported()
        assert host.reports == [(TOPIC, 0)]
        assert not (tmp_path / ("b" if failed.name == "a" else "a") / "t-0").exists()


async def test_going_back_cancels(tmp_path: Path) -> None:
    async with broker(tmp_path, rate=1e4) as host:
        host.create(2)
        host.produce(0, 20, 60_000)
        source, target = host.folder(0), host.move(0)
        await until(lambda: target.futures, "the move to begin")
        host.moves.alter("t", 0, str(source.path))
        await until(lambda: not target.futures, "the move to end")
        assert host.folder(0) is source


async def test_a_choice_for_a_partition_to_come(tmp_path: Path) -> None:
    async with broker(tmp_path) as host:
        host.create(1)
        taken = host.folder(0)
        assert code(lambda: host.moves.alter("t", 1, str(taken.path))) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        host.create(1, first=1)
        assert host.folder(1) is taken
        assert not host.logs.wishes


async def test_what_cannot_be_moved(tmp_path: Path) -> None:
    async with broker(tmp_path) as host:
        host.create(1)
        host.push(PartitionRecord(topic_id=TOPIC, partition=1, replicas=[2], isr=[2], leader=2))
        target = str(host.other(0).path)
        assert code(lambda: host.moves.alter("t", 0, "/nowhere")) is ErrorCode.LOG_DIR_NOT_FOUND
        assert code(lambda: host.moves.alter("t", 1, target)) is ErrorCode.REPLICA_NOT_AVAILABLE
        assert code(lambda: host.moves.alter("x" * 249, 0, target)) is ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_cordoned_folders_take_nothing_while_others_can(tmp_path: Path) -> None:
    async with broker(tmp_path) as host:
        host.logs.cordoned = frozenset({tmp_path / "a"})
        host.create(3)
        assert {host.folder(index).path for index in range(3)} == {tmp_path / "b"}
        refused = code(lambda: host.moves.alter("t", 0, str(tmp_path / "a")))
        assert refused is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        host.logs.cordoned = frozenset({tmp_path / "a", tmp_path / "b"})
        host.create(1, first=3)
        assert host.folder(3).path == tmp_path / "a"


async def test_reports_are_repeated_until_they_are_known() -> None:
    answers = [KafkaError(ErrorCode.REQUEST_TIMED_OUT, "nobody"), None]
    reports: list[list[PartitionKey]] = []

    async def report(keys: Sequence[PartitionKey]) -> None:
        reports.append(list(keys))
        answer = answers.pop(0)
        if answer is not None:
            raise answer

    offline = OfflineReplicas(report)
    offline.add([(TOPIC, 0), (TOPIC, 1)])
    offline.add([(TOPIC, 0)])
    async with asyncio.timeout(DEADLINE_S):
        await offline.reported()
    assert reports == [[(TOPIC, 0), (TOPIC, 1)]] * 2


@pytest.mark.parametrize("size", [10, 200_000])
async def test_a_disk_that_refuses_to_read_takes_the_folder_offline(tmp_path: Path, size: int) -> None:
    async with broker(tmp_path) as host:
        host.create(2)
        host.produce(0, 1, size)
        piece = host.replicas.get("t", 0).log.read(0, 1 << 20, 1, at_least_one=True)
        with mock.patch("os.pread", side_effect=OSError(errno.EIO, os.strerror(errno.EIO))):
            if size < 1000:
                assert len(to_send(piece)) == 0
            else:
                with pytest.raises(OSError, match="error"):
                    piece.read()
        assert code(lambda: host.replicas.get("t", 0)) is ErrorCode.KAFKA_STORAGE_ERROR
        host.produce(1, 1)

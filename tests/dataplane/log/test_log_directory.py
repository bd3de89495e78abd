"""A data folder: its owner, its lock, and the data that survives a stop, a crash and a deletion."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest

from ottla.dataplane.log import LogConfig, durability
from ottla.dataplane.storage.directory import LogDirectory
from ottla.dataplane.storage.log_store import LogStore
from ottla.protocol.errors import ErrorCode, KafkaError
from tests.dataplane.log.batches import make_batch

CONFIG = LogConfig()
TOPIC_ID = bytes(range(16))


def _open(path: Path, cluster: str = "ottla-1", node: int = 2, *, load: bool = True) -> LogDirectory:
    directory = LogDirectory.open(path, cluster, node, new_directory_id=b"d" * 16)
    if load:
        directory.load({}, CONFIG, now_ms=0)
    return directory


def _fill(directory: LogDirectory, partition: int, count: int) -> None:
    log = directory.create("flights", partition, TOPIC_ID, CONFIG, now_ms=0)
    for _ in range(count):
        log.produced.append(memoryview(make_batch()), 1, 1_000)


def test_a_clean_stop_is_remembered_once_with_its_broker_epoch(tmp_path: Path) -> None:
    directory = _open(tmp_path)
    assert directory.last_clean_broker_epoch is None
    _fill(directory, 0, 5)
    _fill(directory, 11, 3)
    directory.checkpoints.write_high_watermarks({("flights", 0): 4})
    directory.close(clean=True, broker_epoch=77)
    assert json.loads((tmp_path / ".kafka_cleanshutdown").read_text()) == {"version": 0, "brokerEpoch": 77}
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n2\nflights 0 5\nflights 11 3\n"
    again = _open(tmp_path)
    assert again.last_clean_broker_epoch == 77
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    assert {key: log.log_end_offset for key, log in again.logs.items()} == {
        ("flights", 0): 5,
        ("flights", 11): 3,
    }
    assert again.topic_id("flights", 11) == TOPIC_ID
    assert again.checkpoints.read_high_watermarks() == {("flights", 0): 4}
    again.close(clean=False)
    crashed = _open(tmp_path)
    assert crashed.last_clean_broker_epoch is None
    assert crashed.logs["flights", 0].log_end_offset == 5
    crashed.close(clean=False)


def test_files_look_as_kafka_writes_them(tmp_path: Path) -> None:
    directory = _open(tmp_path)
    _fill(directory, 0, 1)
    directory.close(clean=True)
    meta = (tmp_path / "meta.properties").read_text().splitlines()
    assert {"version=1", "cluster.id=ottla-1", "node.id=2"} <= set(meta)
    assert (tmp_path / "flights-0" / "partition.metadata").read_text() == (
        "version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    )
    assert (tmp_path / "flights-0" / "leader-epoch-checkpoint").read_text() == "0\n1\n1 0\n"


@pytest.mark.parametrize("left", [b"", bytes(43)])
def test_a_power_failure_before_the_first_flush_leaves_a_log_without_its_topics_id(
    tmp_path: Path, left: bytes
) -> None:
    directory = _open(tmp_path)
    _fill(directory, 0, 3)
    directory.close(clean=False)
    (tmp_path / "flights-0" / "partition.metadata").write_bytes(left)
    again = _open(tmp_path)
    assert again.failed == {}
    assert again.topic_id("flights", 0) is None
    assert again.create("flights", 0, TOPIC_ID, LogConfig(), now_ms=0).log_end_offset == 3
    again.close(clean=False)
    last = _open(tmp_path)
    assert last.topic_id("flights", 0) == TOPIC_ID
    last.close(clean=False)


def test_a_folder_of_another_node_or_cluster_is_refused(tmp_path: Path) -> None:
    _open(tmp_path, "X", 3).close(clean=True)
    for cluster, node in (("Y", 3), ("X", 2)):
        with pytest.raises(
            KafkaError, match=f"belongs to node 3 of cluster X, not node {node} of cluster {cluster}"
        ):
            _open(tmp_path, cluster, node)
    _open(tmp_path, "X", 3).close(clean=False)


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    directory = _open(tmp_path)
    program = (
        "import sys, pathlib; from ottla.dataplane.storage.directory import LogDirectory\n"
        "LogDirectory.open(pathlib.Path(sys.argv[1]), 'ottla-1', 2, new_directory_id=bytes(16))"
    )
    other = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert "is in use by another process" in other.stderr
    directory.close(clean=False)
    _open(tmp_path).close(clean=False)


def test_a_folder_that_cannot_be_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(KafkaError, match="cannot use data folder") as caught:
        _open(tmp_path / "file")
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize(
    "text",
    ["", "version=1\ncluster.id=X\n", "version=7\n", "version=1\ncluster.id=X\nnode.id=a\ndirectory.id=b\n"],
)
def test_unreadable_meta_properties_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "meta.properties").write_text(text)
    with pytest.raises(KafkaError, match=r"meta\.properties"):
        _open(tmp_path)


@pytest.mark.parametrize(
    "text", ["", "0\n", "1\n0\n", "0\n2\nflights 0 5\n", "0\n1\nflights zero 5\n", "0\n1\na b\n"]
)
def test_an_unreadable_checkpoint_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "recovery-point-offset-checkpoint").write_text(text)
    directory = _open(tmp_path, load=False)
    with pytest.raises(KafkaError, match="recovery-point-offset-checkpoint is damaged"):
        directory.load({}, CONFIG, now_ms=0)
    directory.close(clean=False)


def test_a_deleted_log_is_gone_at_once_and_stays_gone(tmp_path: Path) -> None:
    directory = _open(tmp_path)
    _fill(directory, 0, 2)
    piece = directory.logs["flights", 0].read(0, 1 << 20, 2, at_least_one=True)
    directory.delete("flights", 0)
    assert directory.get("flights", 0) is None
    renamed = [path.name for path in tmp_path.iterdir() if path.is_dir()]
    assert len(renamed) == 1
    assert renamed[0].endswith("-delete")
    assert directory.create("flights", 0, b"n" * 16, CONFIG, now_ms=0).log_end_offset == 0
    directory.remove_deleted()
    assert len(piece.read()) == piece.size > 0, "a slice outlives the log"
    piece.release()
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["flights-0"]
    directory.close(clean=False)


def test_a_deletion_interrupted_by_a_crash_is_finished_later(tmp_path: Path) -> None:
    directory = _open(tmp_path)
    _fill(directory, 0, 2)
    directory.delete("flights", 0)
    directory.close(clean=False)
    directory = _open(tmp_path)
    assert not directory.logs
    directory.remove_deleted()
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]
    directory.close(clean=False)


def test_one_damaged_log_does_not_keep_the_others_from_loading(tmp_path: Path) -> None:
    directory = _open(tmp_path)
    for partition in (0, 1):
        _fill(directory, partition, 3)
    directory.close(clean=True)
    (tmp_path / "flights-1" / f"{0:020d}.log").write_bytes(b"")
    directory = _open(tmp_path)
    assert list(directory.logs) == [("flights", 0)]
    with pytest.raises(KafkaError) as caught:
        directory.get("flights", 1)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert "flights-1" in caught.value.message
    directory.close(clean=False)


def test_a_cut_below_the_recovery_point_is_checkpointed_before_it_happens(tmp_path: Path) -> None:
    directory = _open(tmp_path)
    _fill(directory, 0, 6)
    log = directory.logs["flights", 0]
    log.flush()
    directory.checkpoint()
    assert "flights 0 6\n" in (tmp_path / "recovery-point-offset-checkpoint").read_text()
    log.truncation.truncate_to(2)
    assert "flights 0 2\n" in (tmp_path / "recovery-point-offset-checkpoint").read_text()
    directory.close(clean=False)
    directory = _open(tmp_path)
    assert directory.logs["flights", 0].log_end_offset == 2
    directory.close(clean=False)


def test_checkpoints_of_a_deleted_log_do_not_reach_its_successor(tmp_path: Path) -> None:
    """A topic is deleted and recreated under its name; the process dies before the next checkpoint."""
    directory = _open(tmp_path)
    _fill(directory, 0, 50)
    old = directory.logs["flights", 0]
    old.roll(2_000)
    old.flush()
    old.advance_log_start_offset(40)
    directory.checkpoints.write_high_watermarks({("flights", 0): 50})
    directory.checkpoint()
    directory.delete("flights", 0)
    log = directory.create("flights", 0, b"n" * 16, CONFIG, now_ms=0)
    for _ in range(45):
        log.produced.append(memoryview(make_batch()), 1, 1_000)
    crashed = _crash_and_open(directory, tmp_path)
    assert not crashed.failed
    reopened = crashed.logs["flights", 0]
    assert (reopened.log_start_offset, reopened.log_end_offset) == (0, 45)
    assert ("flights", 0) not in crashed.checkpoints.read_high_watermarks()
    crashed.close(clean=False)


def test_what_could_not_be_deleted_does_not_become_the_log_of_the_next_topic(tmp_path: Path) -> None:
    directory = _open(tmp_path)
    _fill(directory, 0, 5)
    with (
        mock.patch.object(Path, "rename", side_effect=OSError(errno.ENOSPC, "no room")),
        pytest.raises(KafkaError),
    ):
        directory.delete("flights", 0)
    assert directory.get("flights", 0) is None
    log = directory.create("flights", 0, b"n" * 16, CONFIG, now_ms=0)
    assert (log.log_start_offset, log.log_end_offset) == (0, 0)
    assert len(list(tmp_path.glob("flights-0.*-stray"))) == 1
    directory.close(clean=True)


def test_a_log_that_cannot_be_opened_is_known_by_its_topic(tmp_path: Path) -> None:
    directory = _open(tmp_path)
    _fill(directory, 0, 5)
    directory.close(clean=True, broker_epoch=3)
    with open(tmp_path / "flights-0" / f"{0:020d}.log", "r+b") as file:
        file.truncate(0)
    damaged = _open(tmp_path)
    assert damaged.failed.keys() == {("flights", 0)}
    assert damaged.topic_id("flights", 0) == TOPIC_ID
    damaged.delete("flights", 0)
    assert not (tmp_path / "flights-0").exists()
    damaged.close(clean=False)


def _crash_and_open(directory: LogDirectory, path: Path) -> LogDirectory:
    directory.close(clean=False)
    return _open(path)


def test_a_folder_without_room_to_recover_its_logs_is_not_in_use_until_there_is(tmp_path: Path) -> None:
    directory = _open(tmp_path)
    log = directory.create("flights", 0, TOPIC_ID, LogConfig(segment_bytes=100), now_ms=0)
    for _ in range(3):
        log.produced.append(memoryview(make_batch()), 1, 1_000)
    assert len(log.segments) > 1
    directory.close(clean=False)
    starting = _open(tmp_path, load=False)
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with (
        mock.patch("os.pwrite", side_effect=full),
        pytest.raises(KafkaError, match="No space left") as refused,
    ):
        starting.load({}, CONFIG, now_ms=0)
    starting.close(clean=False)
    assert isinstance(refused.value.__cause__, OSError), "the broker tells this from damage"
    again = _open(tmp_path)
    assert again.logs["flights", 0].log_end_offset == 3
    again.close(clean=False)


def test_a_log_that_the_disk_cannot_read_counts_as_damaged(tmp_path: Path) -> None:
    directory = _open(tmp_path)
    _fill(directory, 0, 3)
    directory.close(clean=False)
    unreadable = OSError(errno.EIO, os.strerror(errno.EIO))
    starting = _open(tmp_path, load=False)
    with mock.patch("os.pread", side_effect=unreadable), mock.patch("os.preadv", side_effect=unreadable):
        starting.load({}, CONFIG, now_ms=0)
    assert starting.failed["flights", 0].__cause__ is None, "it is not tried again: another replica has it"
    assert "Input/output error" in starting.failed["flights", 0].message
    starting.close(clean=False)


def _damage(path: Path) -> None:
    """Damage the middle of the first segment."""
    file = path / f"{0:020d}.log"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0xFF
    file.write_bytes(data)


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_that_is_damaged_where_it_was_flushed_is_cut_by_no_later_start(
    tmp_path: Path, *, clean: bool
) -> None:
    """Later checkpoints keep the log's recovery point."""
    directory = _open(tmp_path)
    _fill(directory, 0, 10)
    _fill(directory, 1, 1)
    directory.logs["flights", 0].advance_log_start_offset(2)
    directory.checkpoints.write_high_watermarks({("flights", 0): 9})
    directory.close(clean=True)
    (tmp_path / ".kafka_cleanshutdown").unlink()
    _damage(tmp_path / "flights-0")
    for _ in range(3):
        directory = _open(tmp_path)
        assert list(directory.failed) == [("flights", 0)]
        _fill(directory, 1, 1)
        directory.checkpoint()
        directory.checkpoints.write_high_watermarks({("flights", 1): 1})
        directory.close(clean=clean)
        for name, offset in (("recovery-point", 10), ("log-start", 2), ("replication", 9)):
            assert f"flights 0 {offset}\n" in (tmp_path / f"{name}-offset-checkpoint").read_text()


def test_a_log_that_proves_to_be_damaged_keeps_its_recovery_point_until_it_is_set_aside(
    tmp_path: Path,
) -> None:
    directory = _open(tmp_path)
    _fill(directory, 0, 10)
    directory.logs["flights", 0].flush()
    directory.checkpoint()
    directory.condemn("flights", 0, KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "it is damaged"))
    _fill(directory, 1, 1)
    directory.checkpoint()
    assert directory.checkpoints.read().recovery_points["flights", 0] == 10
    refused = OSError(errno.EIO, "Input/output error")
    with mock.patch.object(Path, "rename", side_effect=refused), pytest.raises(KafkaError, match="rename"):
        directory.set_aside("flights", 0)
    _fill(directory, 1, 1)
    directory.checkpoint()
    assert directory.checkpoints.read().recovery_points["flights", 0] == 10
    directory.set_aside("flights", 0)
    _fill(directory, 0, 1)
    assert ("flights", 0) not in directory.checkpoints.read().recovery_points
    directory.close(clean=False)


@contextmanager
def flush_under_way(directory: LogDirectory) -> Iterator[threading.Event]:
    """Run a checkpoint in a thread that pauses within a flush, before it writes leader epochs, until the event."""
    inside, go_on = threading.Event(), threading.Event()
    sync_segments = durability.Durability.sync_segments

    def slow(self: durability.Durability, segments: object) -> None:
        sync_segments(self, segments)  # type: ignore[arg-type]
        inside.set()
        go_on.wait(60)

    with mock.patch.object(durability.Durability, "sync_segments", slow):
        checkpoint = threading.Thread(target=directory.checkpoint)
        checkpoint.start()
        assert inside.wait(60)
        try:
            yield go_on
        finally:
            go_on.set()
            checkpoint.join(60)


def _lead(directory: LogDirectory, topic_id: bytes, epoch: int) -> Path:
    log = directory.create("flights", 0, topic_id, CONFIG, now_ms=0)
    log.leader_epochs.assign(epoch, 0)
    log.produced.append(memoryview(make_batch()), epoch, 1_000)
    return log.directory


def test_a_log_that_is_deleted_under_its_flush_is_no_failure(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = _open(tmp_path)
    failures: list[KafkaError] = []
    directory.on_failure = failures.append
    _lead(directory, TOPIC_ID, 7)
    with flush_under_way(directory):
        directory.delete("flights", 0)
        directory.remove_deleted()
    assert not failures
    assert directory.failure is None
    assert not caplog.records, "nothing is wrong, so nothing is said"
    directory.close(clean=False)


def test_a_log_of_the_same_name_waits_for_the_flush_of_the_one_that_was_deleted(tmp_path: Path) -> None:
    """After a restart it would find the deleted log's leader epochs in its folder."""
    store = LogStore.open([tmp_path], "ottla-1", 2, lambda: 0)
    (directory,) = store.directories
    folder = _lead(directory, TOPIC_ID, 7)
    with flush_under_way(directory):
        store.delete("flights", TOPIC_ID, 0)
        with pytest.raises(OSError, match="is still there") as refused:
            store.create("flights", b"n" * 16, 0, CONFIG)
        assert refused.value.errno == errno.EBUSY
        assert not folder.exists()
        assert directory.failure is None
    store.create("flights", b"n" * 16, 0, CONFIG)
    assert not (folder / "leader-epoch-checkpoint").exists()
    store.close(clean=False)

"""A clean stop flushes many logs together, and trusts no data that the disk refused."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from ottla.dataplane.log import filesystem_sync
from ottla.dataplane.log.checkpoints import CLEAN_SHUTDOWN
from ottla.dataplane.storage import log_closing
from ottla.dataplane.storage.directory import LogDirectory
from ottla.protocol.errors import KafkaError
from tests.dataplane.storage.data_folders import (
    CONFIG,
    NOW_MS,
    TOPIC,
    TOPIC_ID,
    append,
    end_transaction,
    fill,
    new_log,
    open_folder,
    produce,
    state,
)


def _is_supported() -> bool:
    with tempfile.TemporaryFile() as file:
        return filesystem_sync.is_supported(file.fileno())


pytestmark = pytest.mark.skipif(not _is_supported(), reason="no call flushes this file system")


class Flushes:
    """Counts of flushes; `refused` holds the errno of calls that fail from now on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.counts: Counter[str] = Counter()
        self.refused: dict[str, int] = {}
        for owner, name in ((filesystem_sync, "syncfs"), (os, "fsync"), (os, "fdatasync")):
            self._watch(monkeypatch, owner, name)

    def _watch(self, monkeypatch: pytest.MonkeyPatch, owner: object, name: str) -> None:
        real = getattr(owner, name)

        def noted(fd: int) -> None:
            if TOPIC in os.readlink(f"/proc/self/fd/{fd}") or name == "syncfs":
                self.counts[name] += 1
                if name in self.refused:
                    raise OSError(self.refused[name], os.strerror(self.refused[name]))
            real(fd)

        monkeypatch.setattr(owner, name, noted)


@pytest.fixture
def flushes(monkeypatch: pytest.MonkeyPatch) -> Flushes:
    return Flushes(monkeypatch)


def _together(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(log_closing, "TOGETHER_FROM", count)


def _folder_of(path: Path, logs: int) -> LogDirectory:
    """Return logs with two unflushed batches each."""
    directory = open_folder(path)
    for index in range(logs):
        new_log(directory, index, 2)
    return directory


def test_many_logs_share_two_flushes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flushes: Flushes
) -> None:
    directory = _folder_of(tmp_path, 8)
    _together(monkeypatch, 8)
    flushes.counts.clear()
    directory.close(clean=True)
    assert flushes.counts == {"syncfs": 2}
    assert (tmp_path / CLEAN_SHUTDOWN).exists()
    again = open_folder(tmp_path)
    assert {log.log_end_offset for log in again.logs.values()} == {2}
    assert {log.recovery_point for log in again.logs.values()} == {2}
    for index in range(7):
        append(again.logs[TOPIC, index])
    flushes.counts.clear()
    again.close(clean=True)
    assert flushes.counts["syncfs"] == 0, "they are not many"
    assert flushes.counts["fdatasync"] >= 7


def test_logs_closed_together_are_as_if_each_was_closed_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flushes: Flushes
) -> None:
    found = []
    for count in (1, 1000):
        _together(monkeypatch, count)
        path = tmp_path / str(count)
        directory = open_folder(path)
        fill(directory)
        directory.close(clean=True)
        shutil.copytree(path, tmp_path / f"{count}-copied")
        known, read = open_folder(path), open_folder(tmp_path / f"{count}-copied")
        found.append([{key: state(log) for key, log in folder.logs.items()} for folder in (known, read)])
        known.close(clean=False)
        read.close(clean=False)
    assert flushes.counts["syncfs"] == 2
    assert found[0][0] == found[0][1]
    assert found[0] == found[1]


def test_where_the_file_system_was_not_flushed_each_log_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flushes: Flushes, caplog: pytest.LogCaptureFixture
) -> None:
    directory = _folder_of(tmp_path, 3)
    _together(monkeypatch, 1)
    flushes.refused["syncfs"] = errno.EIO
    flushes.counts.clear()
    directory.close(clean=True)
    assert flushes.counts["syncfs"] == 1
    assert flushes.counts["fdatasync"] >= 3
    assert "flushed by itself" in caplog.text
    assert (tmp_path / CLEAN_SHUTDOWN).exists()


def test_a_log_that_cannot_be_flushed_either_way_leaves_no_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flushes: Flushes
) -> None:
    directory = _folder_of(tmp_path, 3)
    _together(monkeypatch, 1)
    flushes.refused |= {"syncfs": errno.EIO, "fdatasync": errno.EIO}
    directory.close(clean=True)
    assert not (tmp_path / CLEAN_SHUTDOWN).exists()


def test_a_log_that_refuses_to_be_written_does_not_keep_the_others_from_being_flushed_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flushes: Flushes
) -> None:
    directory = _folder_of(tmp_path, 3)
    shutil.rmtree(tmp_path / f"{TOPIC}-1")
    _together(monkeypatch, 1)
    flushes.counts.clear()
    directory.close(clean=True)
    assert flushes.counts["syncfs"] in (0, 2)
    assert not (tmp_path / CLEAN_SHUTDOWN).exists()
    shutil.rmtree(tmp_path / f"{TOPIC}-0")


def test_a_log_on_another_disk_is_flushed_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flushes: Flushes
) -> None:
    """The log's folder is a link to elsewhere, so a flush of this file system does not cover it."""
    directory = _folder_of(tmp_path, 3)
    real = os.stat(tmp_path).st_dev

    def stat(path: Path) -> SimpleNamespace:
        return SimpleNamespace(st_dev=real + (path.name == f"{TOPIC}-2"))

    _together(monkeypatch, 1)
    flushes.counts.clear()
    with monkeypatch.context() as moved:
        moved.setattr(log_closing, "os", SimpleNamespace(stat=stat, fstat=os.fstat))
        directory.close(clean=True)
    assert flushes.counts["syncfs"] == 2
    assert flushes.counts["fdatasync"] == 4, "log, indexes and topic id of one"


def test_where_the_kind_of_file_system_is_not_known_to_flush_each_log_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flushes: Flushes
) -> None:
    """The call does nothing on FUSE, and reports success."""
    directory = _folder_of(tmp_path, 3)
    _together(monkeypatch, 1)
    monkeypatch.setattr(filesystem_sync, "_file_system", lambda fd: 0x65735546)
    flushes.counts.clear()
    directory.close(clean=True)
    assert flushes.counts["syncfs"] == 0
    assert flushes.counts["fdatasync"] >= 3
    assert (tmp_path / CLEAN_SHUTDOWN).exists()


def test_the_kind_of_a_file_system_is_found_out() -> None:
    with open("/proc/self/status", "rb") as file:
        assert filesystem_sync._file_system(file.fileno()) == 0x9FA0
        assert not filesystem_sync.is_supported(file.fileno())
    assert filesystem_sync._file_system(1 << 20) is None


def test_a_file_system_is_flushed_by_any_open_file(tmp_path: Path) -> None:
    with open(tmp_path / "file", "wb") as file:
        filesystem_sync.syncfs(file.fileno())
    with pytest.raises(OSError, match="Bad file descriptor"):
        filesystem_sync.syncfs(1 << 20)


@pytest.mark.parametrize(
    ("release", "is_recent"),
    [("5.8.0-1-amd64", True), ("6.1", True), ("5.7.19", False), ("4.19.0", False), ("", False), ("x", False)],
)
def test_kernels_that_hide_failures_are_known(release: str, is_recent: bool) -> None:
    assert filesystem_sync._is_recent(release) == is_recent


def test_a_log_that_moves_here_and_has_its_lasting_name_is_closed_as_the_others(tmp_path: Path) -> None:
    """The next start finds it under that name, and trusts it after a clean stop, also its aborted transactions, which
    are only in memory until it is closed.
    """
    directory = open_folder(tmp_path)
    append(directory.create_future(TOPIC, 0, TOPIC_ID, CONFIG, now_ms=NOW_MS))
    settled = directory.settle_future(TOPIC, 0, CONFIG, now_ms=NOW_MS)
    produce(settled, 7, 0, transactional=True)
    end_transaction(settled, 7, 1, commit=False)
    aborted = settled.transactions.aborted(0, 3)
    assert [transaction.producer_id for transaction in aborted] == [7]
    directory.close(clean=True)
    again = open_folder(tmp_path)
    assert again.logs[TOPIC, 0].transactions.aborted(0, 3) == aborted
    again.close(clean=False)


def test_a_log_that_moves_here_and_cannot_be_flushed_leaves_no_mark(tmp_path: Path, flushes: Flushes) -> None:
    directory = open_folder(tmp_path)
    append(directory.create_future(TOPIC, 0, TOPIC_ID, CONFIG, now_ms=NOW_MS))
    append(directory.settle_future(TOPIC, 0, CONFIG, now_ms=NOW_MS))
    flushes.refused["fdatasync"] = errno.EIO
    directory.close(clean=True)
    assert not (tmp_path / CLEAN_SHUTDOWN).exists()


def _refuse(self: Path, target: Path) -> Path:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.mark.parametrize("is_moved", [True, False])
def test_a_log_that_keeps_its_name_although_nobody_uses_it_leaves_no_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_moved: bool
) -> None:
    """The log was moved away or deleted, and could not be renamed.

    The next start finds it, and would trust unfinished files.
    """
    directory = open_folder(tmp_path)
    log = new_log(directory, 0)
    produce(log, 7, 0, transactional=True)
    end_transaction(log, 7, 1, commit=False)
    aborted = log.transactions.aborted(0, 2)
    with monkeypatch.context() as broken:
        broken.setattr(Path, "rename", _refuse)
        with pytest.raises(KafkaError, match="cannot rename"):
            if is_moved:
                directory.discard(directory.retire(TOPIC, 0))
            else:
                directory.delete(TOPIC, 0)
    directory.close(clean=True)
    assert not (tmp_path / CLEAN_SHUTDOWN).exists()
    again = open_folder(tmp_path)
    assert again.logs[TOPIC, 0].transactions.aborted(0, 2) == aborted
    again.delete(TOPIC, 0)
    again.close(clean=True)
    assert (tmp_path / CLEAN_SHUTDOWN).exists()

"""The names of a log's files and of its folder are durable after the first flush, at no further cost."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.dataplane.log import LogConfig, PartitionLog
from ottla.dataplane.storage.directory import LogDirectory
from ottla.protocol.errors import KafkaError
from tests.dataplane.log.batches import make_batch

CONFIG = LogConfig()


class Syncs:
    """A counter of flushed folders; `refuse` returns the errno of a failing flush."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._fsync = os.fsync
        self._by_inode: Counter[int] = Counter()
        self.refuse: Callable[[Path], int] = lambda path: 0
        monkeypatch.setattr(os, "fsync", self._noted)

    def _noted(self, fd: int) -> None:
        code = self.refuse(Path(f"/proc/self/fd/{fd}").resolve())
        if code:
            raise OSError(code, os.strerror(code))
        self._fsync(fd)
        self._by_inode[os.fstat(fd).st_ino] += 1

    def of(self, folder: Path) -> int:
        """Return the number of flushes since the last call."""
        return self._by_inode.pop(folder.stat().st_ino, 0)


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch) -> Syncs:
    return Syncs(monkeypatch)


def _open(folder: Path, *, clean: bool = False) -> PartitionLog:
    return PartitionLog.open(folder, CONFIG, clean_shutdown=clean, recovery_point=0, now_ms=1)


def _append(log: PartitionLog) -> None:
    log.produced.append(memoryview(make_batch()), 0, 1)


def test_segments_that_roll_flush_the_logs_folder_and_not_the_one_above(tmp_path: Path, syncs: Syncs) -> None:
    folder = tmp_path / "t-0"
    for opened in range(2):
        log = _open(folder, clean=opened > 0)
        _append(log)
        log.flush()
        assert syncs.of(tmp_path) == (not opened), "a clean stop has flushed the name"
        assert (syncs.of(folder) > 0) == (not opened)
        for _ in range(5):
            _append(log)
            log.roll(1)
            log.flush()
        assert (syncs.of(tmp_path), syncs.of(folder)) == (0, 5)
        log.close(clean=True)
        assert syncs.of(tmp_path) == 0
        syncs.of(folder)


def test_a_name_that_the_disk_refused_is_flushed_by_the_next_flush(tmp_path: Path, syncs: Syncs) -> None:
    log = _open(tmp_path / "t-0")
    syncs.refuse = lambda path: errno.ENOSPC if path == tmp_path else 0
    with pytest.raises(KafkaError):
        log.flush()
    assert (log.failure, log.needs_flush, syncs.of(tmp_path)) == (None, True, 0)
    syncs.refuse = lambda path: 0
    log.flush()
    assert (log.needs_flush, syncs.of(tmp_path)) == (False, 1)
    log.close(clean=False)


def test_the_name_of_a_log_that_was_moved_here_or_made_anew_is_flushed(tmp_path: Path, syncs: Syncs) -> None:
    directory = LogDirectory.open(tmp_path, "cluster", 1, new_directory_id=b"d" * 16)
    directory.load({}, CONFIG, now_ms=1)
    syncs.of(tmp_path)
    _append(directory.create_future("t", 0, b"t" * 16, CONFIG, now_ms=1))
    directory.settle_future("t", 0, CONFIG, now_ms=1)
    assert syncs.of(tmp_path) == 2, "with the name it grew under, and with its lasting one"
    directory.adopt_future("t", 0, b"t" * 16)
    directory.delete("t", 0)
    directory.create("t", 0, b"u" * 16, CONFIG, now_ms=1).flush()
    assert syncs.of(tmp_path) == 1
    directory.close(clean=False)


def test_what_the_start_after_a_clean_stop_trusts_is_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Power may fail between the two: an index that lost its end would make records look older than they are."""
    fdatasync = os.fdatasync
    synced: list[str] = []

    def noted(fd: int) -> None:
        fdatasync(fd)
        synced.append(Path(os.readlink(f"/proc/self/fd/{fd}")).name)

    monkeypatch.setattr(os, "fdatasync", noted)
    log = _open(tmp_path / "t-0")
    _append(log)
    log.close(clean=True)
    written = {path.name for path in (tmp_path / "t-0").iterdir() if path.name.startswith("0")}
    assert {f"{0:020}.timeindex", f"{0:020}.log"} <= written
    trusted = sorted(name for name in written if not name.endswith(".snapshot"))
    assert sorted(name for name in synced if name.startswith("0")) == trusted, "each once"


def _append_and_cut(log: PartitionLog) -> None:
    _append(log)
    log.truncation.truncate_to(log.log_end_offset - 1)


CHANGES: dict[str, Callable[[PartitionLog], object]] = {
    "appended": _append,
    "appended and cut": _append_and_cut,
    "cut": lambda log: log.truncation.truncate_to(0),
    "began anew": lambda log: log.truncation.truncate_fully_and_start_at(7),
    "lost its first segment": lambda log: log.advance_log_start_offset(2),
    "lost an epoch": lambda log: log.leader_epochs.truncate_from_end(0),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_clean_stop_flushes_a_log_that_something_has_happened_to(
    tmp_path: Path, syncs: Syncs, change: str
) -> None:
    folder = tmp_path / "t-0"
    log = _open(folder)
    for _ in range(3):
        _append(log)
        log.roll(1)
    log.close(clean=True)
    syncs.of(folder)
    log = _open(folder, clean=True)
    CHANGES[change](log)
    end, start = log.log_end_offset, log.log_start_offset
    log.close(clean=True)
    assert syncs.of(folder) >= 1
    log = PartitionLog.open(
        folder, CONFIG, clean_shutdown=True, recovery_point=0, now_ms=1, log_start_offset=start
    )
    assert (log.log_start_offset, log.log_end_offset) == (start, end)
    log.close(clean=False)


def test_a_clean_stop_leaves_logs_alone_that_nothing_has_happened_to(tmp_path: Path, syncs: Syncs) -> None:
    """Thousands of partitions may be idle, and a flush takes the disk some time."""
    written, new = tmp_path / "t-0", tmp_path / "t-1"
    log = _open(written)
    _append(log)
    log.close(clean=True)
    log = _open(new)
    log.flush()
    log.close(clean=True)
    assert syncs.of(new) == 1
    syncs.of(written)
    for folder, end, epoch in ((written, 1, 7), (new, 0, 7), (written, 1, 8)):
        before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
        log = _open(folder, clean=True)
        assert log.log_end_offset == end
        log.leader_epochs.assign(epoch, end)  # as a new leader does
        assert not log.needs_flush
        log.close(clean=True)
        assert syncs.of(folder) == 0
        assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before

"""The note in a data folder by which a start knows whether only the broker's process died."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from ottla.dataplane.log import page_cache
from ottla.dataplane.log.page_cache import PageCache, UnknownPageCache
from ottla.dataplane.log.recovery import recovery
from ottla.dataplane.storage.directory import LogDirectory
from ottla.dataplane.storage.page_cache_note import FILE_NAME
from ottla.protocol.errors import ErrorCode, KafkaError
from tests.dataplane.storage.data_folders import TOPIC, new_log, open_folder

HEADERS, ALL = "only the headers are read", "all records above the recovery points are read"


class Machine:
    """A machine whose page cache has a known identity."""

    def __init__(self) -> None:
        self.boot, self.superblock, self.errors = "first", 1, 0
        self.is_known = True

    def page_cache_of(self, folder: Path) -> PageCache:
        if not self.is_known:
            raise UnknownPageCache("the file system is not known")
        status = os.stat(folder)
        return PageCache(self.boot, status.st_dev, self.superblock, self.errors, status.st_ino)


@pytest.fixture(autouse=True)
def machine() -> Iterator[Machine]:
    machine = Machine()
    with patch.object(page_cache, "page_cache_of", machine.page_cache_of):
        yield machine


def _killed(path: Path) -> None:
    """Leave a folder with a log as a killed broker does."""
    directory = open_folder(path)
    new_log(directory, 0, 3)
    directory.close(clean=False)


def _told(path: Path, caplog: pytest.LogCaptureFixture) -> str:
    """Return what a start logs about its recovery."""
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        directory = open_folder(path)
    assert directory.logs[TOPIC, 0].log_end_offset == 3
    directory.close(clean=False)
    return caplog.text


def test_after_a_kill_headers_are_read_and_after_a_restart_of_the_machine_everything(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, machine: Machine
) -> None:
    _killed(tmp_path)
    assert HEADERS in _told(tmp_path, caplog)
    assert HEADERS in _told(tmp_path, caplog)
    machine.boot = "second"
    told = _told(tmp_path, caplog)
    assert "the machine has restarted since" in told
    assert ALL in told
    assert HEADERS in _told(tmp_path, caplog)
    machine.superblock = 2
    assert "its file system was mounted again since" in _told(tmp_path, caplog)
    machine.errors = 1
    assert "met an error" in _told(tmp_path, caplog)


def test_a_clean_stop_says_nothing_and_leaves_the_note(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _killed(tmp_path)
    open_folder(tmp_path).close(clean=True)
    assert not _told(tmp_path, caplog)
    assert HEADERS in _told(tmp_path, caplog)


def test_without_a_readable_note_everything_is_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, machine: Machine
) -> None:
    _killed(tmp_path)
    note = tmp_path / FILE_NAME
    whole = note.read_bytes()
    note.unlink()
    assert "it has no file page-cache" in _told(tmp_path, caplog)
    for spoiled in (b"", b"garbage", whole[:-1], whole.replace(b"first", b"other"), b"\xff" * 40):
        note.write_bytes(spoiled)
        told = _told(tmp_path, caplog)
        assert "page-cache cannot be read" in told
        assert ALL in told
    machine.is_known = False
    assert "the file system is not known" in _told(tmp_path, caplog)
    assert not note.exists()
    machine.is_known = True
    assert "it has no file page-cache" in _told(tmp_path, caplog)


def test_the_note_of_another_folder_does_not_count(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("one", "two"):
        _killed(tmp_path / name)
    (tmp_path / "two" / FILE_NAME).write_bytes((tmp_path / "one" / FILE_NAME).read_bytes())
    assert ALL in _told(tmp_path / "two", caplog)


def test_no_note_is_there_while_logs_are_opened(tmp_path: Path) -> None:
    _killed(tmp_path)
    seen = []
    adopt = LogDirectory._adopt

    def looking(self: LogDirectory, *args: object) -> None:
        seen.append((tmp_path / FILE_NAME).exists())
        adopt(self, *args)  # type: ignore[arg-type]

    with patch.object(LogDirectory, "_adopt", looking):
        directory = open_folder(tmp_path)
    assert seen == [False]
    assert (tmp_path / FILE_NAME).exists()
    directory.close(clean=False)


def test_a_folder_with_a_damaged_log_has_no_note(tmp_path: Path) -> None:
    directory = open_folder(tmp_path)
    log = new_log(directory, 0, 3)
    log.flush()
    directory.checkpoint()
    directory.close(clean=False)
    os.truncate(log.segments[0].path, 100)
    directory = open_folder(tmp_path)
    assert directory.failed
    assert not (tmp_path / FILE_NAME).exists()
    directory.close(clean=False)


def test_the_note_goes_when_the_disk_refuses_a_flush_or_a_log_is_damaged(tmp_path: Path) -> None:
    for refused in (errno.EIO, errno.ENOMEM):
        path = tmp_path / str(refused)
        directory = open_folder(path)
        log = new_log(directory, 0, 3)
        assert (path / FILE_NAME).exists()
        with patch("os.fdatasync", side_effect=OSError(refused, "refused")), pytest.raises(KafkaError):
            log.flush()
        assert not (path / FILE_NAME).exists()
        directory.close(clean=False)
    path = tmp_path / "damaged"
    directory = open_folder(path)
    new_log(directory, 0)
    directory.condemn(TOPIC, 0, KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "damaged"))
    assert not (path / FILE_NAME).exists()
    directory.close(clean=False)


def test_a_log_on_another_device_is_read_as_a_whole(tmp_path: Path) -> None:
    _killed(tmp_path)
    trusted: list[bool] = []
    with (
        patch("ottla.dataplane.storage.directory._is_on_same_device", return_value=False),
        patch.object(recovery, "_recover", _recorded(trusted)),
    ):
        open_folder(tmp_path).close(clean=False)
    assert trusted == [False]


def _recorded(trusted: list[bool]) -> object:
    recover = recovery._recover

    def recorded(*args: object, trusts_bodies: bool) -> object:
        trusted.append(trusts_bodies)
        return recover(*args, trusts_bodies=trusts_bodies)  # type: ignore[arg-type]

    return recorded

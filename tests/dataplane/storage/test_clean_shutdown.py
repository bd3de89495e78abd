"""After a clean stop logs are opened without reading them, unless another program has touched their files."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.dataplane.log.checkpoints import CLEAN_SHUTDOWN
from ottla.dataplane.storage.clean_shutdown import FILE_NAME
from ottla.protocol.checksum import crc32c
from tests.dataplane.storage.data_folders import TOPIC, TOPIC_ID, append, fill, new_log, open_folder, state

FEW_PRODUCERS = [index for index in range(12) if index != 10]


def _stop(path: Path, batches: int = 3) -> None:
    """Make a folder with one log, closed cleanly."""
    directory = open_folder(path)
    new_log(directory, 0, batches)
    directory.close(clean=True, broker_epoch=5)


def _is_known(path: Path) -> bool:
    """Return whether the start opened the log without reading it; check that its state is the same."""
    directory = open_folder(path)
    log = directory.logs[TOPIC, 0]
    assert directory.last_clean_broker_epoch == 5
    assert directory.topic_id(TOPIC, 0) == TOPIC_ID
    assert state(log)["ends"] == (0, 3, 3)
    directory.close(clean=True, broker_epoch=5)
    return log.fingerprint is not None


def test_a_start_finds_what_the_files_of_logs_say(tmp_path: Path) -> None:
    stopped, copied = tmp_path / "stopped", tmp_path / "copied"
    directory = open_folder(stopped)
    fill(directory)
    directory.close(clean=True)
    shutil.copytree(stopped, copied)  # other files, so that each is read
    for _ in range(2):
        known, read = open_folder(stopped), open_folder(copied)
        assert [i for (_, i), log in sorted(known.logs.items()) if log.fingerprint] == FEW_PRODUCERS
        assert not any(log.fingerprint for log in read.logs.values())
        assert known.logs.keys() == read.logs.keys()
        for key, log in known.logs.items():
            assert state(log) == state(read.logs[key]), key
            assert known.topic_id(*key) == read.topic_id(*key) == TOPIC_ID
        known.close(clean=True)
        read.close(clean=False)
        (copied / CLEAN_SHUTDOWN).write_text('{"version":0,"brokerEpoch":1}')


def test_a_log_that_is_known_goes_on_as_any_other(tmp_path: Path) -> None:
    directory = open_folder(tmp_path)
    fill(directory)
    directory.close(clean=True)
    for _ in range(3):
        directory = open_folder(tmp_path)
        ends = {}
        for key, log in directory.logs.items():
            for _ in range(20):
                append(log, b"y" * 90, 9)
            ends[key] = log.log_end_offset
            found = log.read(log.log_end_offset - 20, 1 << 20, log.log_end_offset, at_least_one=True)
            assert found.size == len(found.read()) > 90
            found.release()
        directory.close(clean=False)
        directory = open_folder(tmp_path)
        assert {key: log.log_end_offset for key, log in directory.logs.items()} == ends
        assert not directory.failed
        directory.close(clean=True)


def test_an_idle_log_is_opened_and_closed_without_opening_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _stop(tmp_path)
    opened: list[str] = []
    names = ("open", "listdir", "scandir", "unlink", "rename", "replace")
    for name in names:
        real = getattr(os, name)

        def noted(path: object, *rest: object, real: Callable[..., object] = real, **more: object) -> object:
            opened.append(os.fspath(path) if isinstance(path, str | os.PathLike) else str(path))
            return real(path, *rest, **more)

        monkeypatch.setattr(os, name, noted)
    directory = open_folder(tmp_path)
    assert directory.logs[TOPIC, 0].log_end_offset == 3
    directory.close(clean=True)
    assert opened
    assert [path for path in opened if f"{TOPIC}-0" in path] == []


def _cut(path: Path) -> None:
    with open(path, "r+b") as file:
        file.truncate(path.stat().st_size - 1)


def _overwrite(path: Path) -> None:
    """Overwrite the file with its own content."""
    with open(path, "r+b") as file:
        data = file.read()
        file.seek(0)
        file.write(data)
    if not data:
        os.utime(path)


def _replace(path: Path) -> None:
    """Replace the file by one with the same bytes and modification time."""
    status = path.stat()
    new = path.with_suffix(".new")
    shutil.copy2(path, new)
    os.utime(new, ns=(status.st_atime_ns, status.st_mtime_ns))
    new.rename(path)


def _touch_back(path: Path) -> None:
    """Change the file, and restore its modification time."""
    status = path.stat()
    _overwrite(path)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


KINDS = (".log", ".index", ".timeindex", ".snapshot", "leader-epoch-checkpoint", "partition.metadata")


@pytest.mark.parametrize("change", [_overwrite, _replace, _touch_back])
@pytest.mark.parametrize("kind", KINDS)
def test_a_log_of_which_a_file_was_touched_is_read(
    tmp_path: Path, kind: str, change: Callable[[Path], None]
) -> None:
    _stop(tmp_path, 3)
    (path,) = (file for file in (tmp_path / f"{TOPIC}-0").iterdir() if file.name.endswith(kind))
    change(path)
    assert not _is_known(tmp_path)
    assert _is_known(tmp_path), "the next stop knows it"


def test_a_log_that_was_cut_is_not_taken_for_what_it_was(tmp_path: Path) -> None:
    _stop(tmp_path)
    _cut(tmp_path / f"{TOPIC}-0" / f"{0:020d}.log")
    directory = open_folder(tmp_path)
    assert list(directory.failed) == [(TOPIC, 0)]
    assert directory.topic_id(TOPIC, 0) == TOPIC_ID
    directory.close(clean=False)


@pytest.mark.parametrize("kind", [".index", ".timeindex", ".snapshot"])
def test_a_log_that_lost_a_file_is_read(tmp_path: Path, kind: str) -> None:
    _stop(tmp_path)
    for path in (tmp_path / f"{TOPIC}-0").glob(f"*{kind}"):
        path.unlink()
    assert not _is_known(tmp_path)


def test_a_log_that_got_a_file_is_read(tmp_path: Path) -> None:
    _stop(tmp_path)
    (tmp_path / f"{TOPIC}-0" / f"{9:020d}.log.deleted").write_bytes(b"left")
    assert not _is_known(tmp_path)


def test_a_log_with_files_to_delete_is_read_by_the_next_start(tmp_path: Path) -> None:
    directory = open_folder(tmp_path)
    log = new_log(directory, 0, 3)
    log.truncation.truncate_fully_and_start_at(0)
    for _ in range(3):
        append(log)
    assert log.doomed
    directory.close(clean=True, broker_epoch=5)
    left = set(tmp_path.glob("*/*.deleted"))
    assert left
    assert not _is_known(tmp_path)
    assert set(tmp_path.glob("*/*.deleted")) == left, "unlinking delays no start"
    directory = open_folder(tmp_path)
    assert set(directory.logs[TOPIC, 0].doomed) == left, "they are unlinked while the broker serves"
    directory.close(clean=False)


def test_a_log_whose_folder_is_gone_is_gone(tmp_path: Path) -> None:
    _stop(tmp_path)
    shutil.rmtree(tmp_path / f"{TOPIC}-0")
    directory = open_folder(tmp_path)
    assert not directory.logs
    directory.close(clean=False)


def test_a_log_that_another_folder_took_the_place_of_is_read(tmp_path: Path) -> None:
    _stop(tmp_path)
    folder = tmp_path / f"{TOPIC}-0"
    shutil.copytree(folder, tmp_path / "copy")
    shutil.rmtree(folder)
    (tmp_path / "copy").rename(folder)
    assert not _is_known(tmp_path)


# The file itself


def test_the_file_goes_with_the_mark_before_a_log_is_written_to(tmp_path: Path) -> None:
    _stop(tmp_path)
    assert (tmp_path / FILE_NAME).exists()
    directory = open_folder(tmp_path)
    assert not (tmp_path / FILE_NAME).exists()
    assert not (tmp_path / CLEAN_SHUTDOWN).exists()
    directory.close(clean=False)
    assert not (tmp_path / FILE_NAME).exists()


def test_half_a_file_is_passed_over(tmp_path: Path) -> None:
    _stop(tmp_path)
    whole = (tmp_path / FILE_NAME).read_bytes()
    for size in (0, 1, 7, 8, 9, len(whole) // 2, len(whole) - 1):
        (tmp_path / FILE_NAME).write_bytes(whole[:size])
        assert not _is_known(tmp_path), size
        assert not list(tmp_path.glob(FILE_NAME + ".tmp"))


@pytest.mark.parametrize("place", [0, 8, 30, -2])
def test_a_file_with_a_changed_byte_is_passed_over(tmp_path: Path, place: int) -> None:
    _stop(tmp_path)
    data = bytearray((tmp_path / FILE_NAME).read_bytes())
    data[place] ^= 1
    (tmp_path / FILE_NAME).write_bytes(data)
    assert not _is_known(tmp_path)


def _with(path: Path, **fields: object) -> None:
    values = json.loads((path / FILE_NAME).read_bytes()[8:]) | fields
    data = json.dumps({name: value for name, value in values.items() if value is not None}).encode()
    (path / FILE_NAME).write_bytes(b"%08x" % crc32c(data) + data)


@pytest.mark.parametrize(
    "fields",
    [
        {"version": 2},
        {"directory": "e" * 32},
        {"mark": [1, 2, 3]},
        {"logs": None},
        {"logs": [["flights", 0]]},
        {"names": []},
    ],
)
def test_a_file_of_another_version_folder_or_stop_is_passed_over(
    tmp_path: Path, fields: dict[str, object]
) -> None:
    _stop(tmp_path)
    _with(tmp_path)
    assert _is_known(tmp_path), "as it is"
    _with(tmp_path, **fields)
    assert not _is_known(tmp_path)


def test_a_file_of_an_earlier_stop_is_passed_over(tmp_path: Path) -> None:
    """An older version of this broker, which does not know of the file, has run and stopped in between."""
    _stop(tmp_path)
    old = (tmp_path / FILE_NAME).read_bytes()
    directory = open_folder(tmp_path)
    directory.close(clean=True, broker_epoch=5)
    (tmp_path / FILE_NAME).write_bytes(old)
    assert not _is_known(tmp_path)


def test_a_file_without_a_clean_stop_is_removed(tmp_path: Path) -> None:
    _stop(tmp_path)
    (tmp_path / CLEAN_SHUTDOWN).unlink()
    directory = open_folder(tmp_path)
    assert directory.last_clean_broker_epoch is None
    assert directory.logs[TOPIC, 0].fingerprint is None
    assert not (tmp_path / FILE_NAME).exists()
    directory.close(clean=False)


def test_a_disk_that_has_no_room_for_the_file_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = os.replace

    def refuse(source: str, target: str) -> None:
        if Path(target).name == FILE_NAME:
            raise OSError(28, "No space left on device")
        real(source, target)

    with monkeypatch.context() as full:
        full.setattr(os, "replace", refuse)
        _stop(tmp_path)
    assert "No space left" in caplog.text
    assert not _is_known(tmp_path)


def test_snapshots_of_producers_do_not_gather(tmp_path: Path) -> None:
    _stop(tmp_path)
    for _ in range(6):
        directory = open_folder(tmp_path)
        log = directory.logs[TOPIC, 0]
        assert log.fingerprint is not None
        append(log)
        directory.close(clean=True)
        assert len(list(tmp_path.glob("*/*.snapshot"))) <= 2

"""Checkpoint files name logs, not topic ids: the remembered state stays proportional to the existing logs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.dataplane.log.checkpoints import HIGH_WATERMARKS, RECOVERY_POINTS, read_offsets
from ottla.dataplane.storage.folder_checkpoints import FolderCheckpoints
from ottla.protocol.errors import ErrorCode, KafkaError


def log_at(offset: int) -> Any:
    return SimpleNamespace(recovery_point=offset, log_start_offset=offset)


def test_logs_that_come_and_go_leave_nothing_behind(tmp_path: Path) -> None:
    logs: dict[tuple[str, int], Any] = {("stays", 0): log_at(1)}
    checkpoints = FolderCheckpoints(tmp_path, logs)
    checkpoints.read()
    for number in range(50):
        key = (f"passing-{number}", 0)
        checkpoints.make_room_for(key)
        logs[key] = log_at(5)
        checkpoints.write_high_watermarks(dict.fromkeys(logs, 5))
        checkpoints.write_recovery_points({})
        checkpoints.write_log_starts()
        assert checkpoints.named == logs.keys()
        del logs[key]


def test_a_log_of_a_name_that_was_there_begins_without_the_rows_of_the_old_one(tmp_path: Path) -> None:
    key = ("again", 0)
    logs: dict[tuple[str, int], Any] = {key: log_at(900)}
    earlier = FolderCheckpoints(tmp_path, logs)
    earlier.write_recovery_points({})
    earlier.write_log_starts()
    checkpoints = FolderCheckpoints(tmp_path, {})
    checkpoints.read()
    checkpoints.make_room_for(key)
    assert read_offsets(tmp_path / RECOVERY_POINTS) == {}
    assert checkpoints.named == frozenset()


def test_what_a_file_says_already_is_not_written_again(tmp_path: Path) -> None:
    logs: dict[tuple[str, int], Any] = {("t", 0): log_at(1), ("t", 1): log_at(1)}
    checkpoints, file = FolderCheckpoints(tmp_path, logs), tmp_path / HIGH_WATERMARKS
    checkpoints.write_high_watermarks(dict.fromkeys(logs, 5))
    written = file.stat().st_ino
    checkpoints.write_high_watermarks(dict.fromkeys(logs, 5))
    assert file.stat().st_ino == written
    checkpoints.write_high_watermarks({("t", 0): 5, ("t", 1): 6})
    assert read_offsets(file) == {("t", 0): 5, ("t", 1): 6}
    del logs["t", 1]
    checkpoints.write_high_watermarks({("t", 0): 5, ("t", 1): 6})
    assert read_offsets(file) == {("t", 0): 5}


def test_what_could_not_be_written_is_written_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = FolderCheckpoints(tmp_path, {("t", 0): log_at(1)})
    checkpoints.write_high_watermarks({("t", 0): 5})

    def refuse(*_: object) -> None:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")

    with monkeypatch.context() as broken:
        broken.setattr("ottla.dataplane.storage.folder_checkpoints.write_offsets", refuse)
        with pytest.raises(KafkaError):
            checkpoints.write_high_watermarks({("t", 0): 6})
    (tmp_path / HIGH_WATERMARKS).unlink()
    checkpoints.write_high_watermarks({("t", 0): 5})
    assert read_offsets(tmp_path / HIGH_WATERMARKS) == {("t", 0): 5}

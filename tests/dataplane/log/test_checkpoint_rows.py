"""The checkpoint files name logs, not topic ids: what is remembered of that stays as small as what is there."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ottla.dataplane.log.checkpoints import RECOVERY_POINTS, read_offsets
from ottla.dataplane.storage.folder_checkpoints import FolderCheckpoints


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

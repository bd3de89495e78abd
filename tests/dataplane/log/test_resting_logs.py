"""Descriptors of logs: active logs have one, idle logs have none."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from ottla.dataplane.log import LogConfig, PartitionLog
from ottla.dataplane.log.segments.descriptors import FileCache
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.record_batch import walk_batches
from tests.dataplane.log.batches import make_batch

NOW = 1_000


def open_logs(folder: Path, count: int, files: FileCache) -> list[PartitionLog]:
    return [
        PartitionLog.open(
            folder / f"t-{number}",
            LogConfig(segment_bytes=300),
            clean_shutdown=False,
            recovery_point=0,
            now_ms=NOW,
            files=files,
        )
        for number in range(count)
    ]


def append(log: PartitionLog, value: bytes) -> None:
    log.produced.append(memoryview(make_batch(1, value)), 0, NOW)


def values(log: PartitionLog) -> list[int]:
    """Return the readable base offsets."""
    found, offset = [], log.log_start_offset
    while offset < log.log_end_offset:
        records = log.read(offset, 1_000_000, log.log_end_offset, at_least_one=True)
        for _, header in walk_batches(records.read()):
            found.append(header.base_offset)
            offset = header.next_offset
        records.release()
    return found


def open_for_appending(logs: list[PartitionLog]) -> list[int]:
    return [number for number, log in enumerate(logs) if log.segment_list.active.is_open]


def test_only_so_many_logs_are_open_for_appending_and_all_take_records(tmp_path: Path) -> None:
    files = FileCache(appenders_max=2)
    logs = open_logs(tmp_path, 5, files)
    assert open_for_appending(logs) == []
    for turn in range(4):
        for number, log in enumerate(logs):
            append(log, bytes([turn]) * 100)
            log.check()
            assert open_for_appending(logs) == sorted(
                {number, max(0, number - 1)} if number or not turn else {0, 4}
            )
    for log in logs:
        assert len(log.segments) > 1
        assert values(log) == [0, 1, 2, 3]
        log.close(clean=True)
    assert [values(log) for log in open_logs(tmp_path, 5, files)] == [[0, 1, 2, 3]] * 5


def test_a_log_that_is_cut_while_it_rests_goes_on_there(tmp_path: Path) -> None:
    first, second = open_logs(tmp_path, 2, FileCache(appenders_max=1))
    for _ in range(5):
        append(first, b"a" * 100)
    append(second, b"b")
    assert open_for_appending([first, second]) == [1]
    first.truncation.truncate_to(1)
    first.check()
    assert open_for_appending([first, second]) == [0]
    append(first, b"c")
    append(second, b"d")
    assert (values(first), values(second)) == ([0, 1], [0, 1])


def test_without_a_descriptor_left_another_log_rests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    idle, busy = open_logs(tmp_path, 2, FileCache())
    append(idle, b"a")
    opens = os.open

    def lacks_descriptors(path: Any, flags: int, *args: Any, **names: Any) -> int:
        if flags & os.O_RDWR and idle.segment_list.active.is_open:
            raise OSError(errno.EMFILE, "Too many open files")
        return opens(path, flags, *args, **names)

    monkeypatch.setattr(os, "open", lacks_descriptors)
    append(busy, b"b")
    assert open_for_appending([idle, busy]) == [1]
    append(idle, b"c")
    assert (values(idle), values(busy)) == ([0, 1], [0])


def test_a_log_that_gets_no_descriptor_refuses_a_record_and_takes_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (log,) = open_logs(tmp_path, 1, FileCache())

    def lacks_descriptors(*_: Any) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", lacks_descriptors)
        with pytest.raises(KafkaError, match="Too many open files") as caught:
            append(log, b"a")
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert log.failure is None
    append(log, b"b")
    assert values(log) == [0]


def test_a_log_whose_file_went_while_it_rested_is_offline(tmp_path: Path) -> None:
    first, second = open_logs(tmp_path, 2, FileCache(appenders_max=1))
    append(first, b"a")
    append(second, b"b")
    file = first.segment_list.active.path
    file.unlink()
    with pytest.raises(KafkaError, match="cannot open"):
        append(first, b"c")
    assert first.failure is not None
    assert not file.exists()

"""The file of records that a cluster will never accept: only incompletely written records are cut off."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from ottla.client.spool.frames import SpooledRecord
from ottla.client.spool.rejected_records import RejectedRecords, read_rejected
from ottla.protocol.errors import ErrorCode, KafkaError


def opened(folder: Path) -> RejectedRecords:
    rejected = RejectedRecords(folder)
    rejected.open(0)
    return rejected


def reject(rejected: RejectedRecords, position: int) -> None:
    record = SpooledRecord(position, "t", None, None, b"%d" % position, 1, ())
    rejected.add([(record, KafkaError(ErrorCode.INVALID_RECORD, "no"))])


def values(folder: Path) -> list[bytes | None]:
    return [entry.record.value for entry in read_rejected(folder)]


def test_damage_at_the_end_is_told_and_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rejected = opened(tmp_path)
    reject(rejected, 0)
    begin = rejected.bytes
    reject(rejected, 1)
    content = bytearray((tmp_path / "rejected").read_bytes())
    content[-5] ^= 1
    (tmp_path / "rejected").write_bytes(content)
    with caplog.at_level(logging.ERROR):
        again = opened(tmp_path)
    assert f"is damaged from byte {begin} to {len(content)}" in caplog.text
    assert (again.count, again.bytes) == (1, len(content))
    reject(again, 2)
    assert (tmp_path / "rejected").read_bytes().startswith(content)
    assert values(tmp_path) == [b"0", b"2"]
    assert opened(tmp_path).count == 2


def test_what_was_not_written_whole_is_cut_off(tmp_path: Path) -> None:
    rejected = opened(tmp_path)
    reject(rejected, 0)
    content = (tmp_path / "rejected").read_bytes()
    reject(rejected, 1)
    whole = (tmp_path / "rejected").read_bytes()
    for size in range(len(content), len(whole)):
        (tmp_path / "rejected").write_bytes(whole[:size])
        assert opened(tmp_path).bytes == len(content)
        assert (tmp_path / "rejected").read_bytes() == content

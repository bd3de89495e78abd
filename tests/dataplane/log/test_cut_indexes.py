"""An index that another program truncates, empties or removes while the log is open is reported as damage."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla.dataplane.log import LogConfig, PartitionLog, is_damage
from ottla.dataplane.log.composed import append_marker
from ottla.dataplane.log.producers.producer_state import NO_NUMBER
from ottla.dataplane.log.timestamps import offset_for_timestamp
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.record_batch import TRANSACTIONAL_FLAG, parse_header
from tests.dataplane.log.batches import make_batch


@pytest.fixture
def log(tmp_path: Path) -> Iterator[PartitionLog]:
    """Return a log of twenty batches, each with an index entry, an aborted transaction, and a growing segment."""
    log = PartitionLog.open(
        tmp_path / "t-0",
        LogConfig(index_interval_bytes=1, message_timestamp_after_max_ms=2**60),
        clean_shutdown=False,
        recovery_point=0,
        now_ms=1,
    )
    for number in range(20):
        log.produced.append(memoryview(make_batch(timestamp=1_000 + number)), 0, 1)
    log.produced.append(memoryview(make_batch(producer=(9, 0, 0), attributes=TRANSACTIONAL_FLAG)), 0, 1)
    append_marker(log, 9, 0, commit=False, number=NO_NUMBER, commit_index=1, leader_epoch=0, now_ms=1)
    log.roll(1)
    log.produced.append(memoryview(make_batch(timestamp=9_000)), 0, 1)
    yield log
    log.close(clean=False)


def _cut_within_an_entry(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2 + 3)


def _emptied(path: Path) -> None:
    path.write_bytes(b"")


def _removed(path: Path) -> None:
    path.unlink()


def _read(log: PartitionLog) -> None:
    log.read(15, 1_000, log.log_end_offset, at_least_one=True).release()


def _read_committed(log: PartitionLog) -> None:
    records = log.read(15, 10_000, log.log_end_offset, at_least_one=True)
    try:
        log.transactions.aborted_among(records, 15, log.log_end_offset)
    finally:
        records.release()


def _look_up_by_time(log: PartitionLog) -> None:
    offset_for_timestamp(log, 1_010, log.log_end_offset)


@pytest.mark.parametrize("used_before", [False, True])
@pytest.mark.parametrize("harm", [_cut_within_an_entry, _emptied, _removed])
@pytest.mark.parametrize(
    ("suffix", "use"),
    [("index", _read), ("timeindex", _look_up_by_time), ("txnindex", _read_committed)],
)
def test_a_cut_index_is_damage_and_the_rest_of_the_log_is_read(
    log: PartitionLog,
    suffix: str,
    use: Callable[[PartitionLog], None],
    harm: Callable[[Path], None],
    used_before: bool,
) -> None:
    """This holds even if the file had been mapped before: access beyond the end of a mapped file kills a process."""
    if used_before:
        use(log)
    path = log.directory / f"{0:020d}.{suffix}"
    harm(path)
    if not (used_before and harm is _removed):  # a file that is mapped stays readable when its name goes
        with pytest.raises(KafkaError) as caught:
            use(log)
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert is_damage(caught.value)
        assert str(path) in caught.value.message
    end = log.log_end_offset
    rest = log.read(end - 1, 1_000, end, at_least_one=True)
    rest.release()
    assert rest.size


@pytest.mark.parametrize("harm", [_cut_within_an_entry, _emptied, _removed])
def test_a_restart_builds_cut_indexes_anew(log: PartitionLog, harm: Callable[[Path], None]) -> None:
    expected = offset_for_timestamp(log, 1_010, log.log_end_offset)
    log.close(clean=True)
    for suffix in ("index", "timeindex"):
        harm(log.directory / f"{0:020d}.{suffix}")
    again = PartitionLog.open(
        log.directory, log.config, clean_shutdown=True, recovery_point=log.log_end_offset, now_ms=1
    )
    try:
        _read(again)
        assert offset_for_timestamp(again, 1_010, again.log_end_offset) == expected
    finally:
        again.close(clean=False)


def test_an_index_that_is_cut_while_it_grows_goes_on_without_what_is_gone(tmp_path: Path) -> None:
    """The index is written several times; between two writes its file is emptied."""
    config = LogConfig(index_interval_bytes=1, message_timestamp_after_max_ms=2**60)
    log = PartitionLog.open(tmp_path / "t-0", config, clean_shutdown=False, recovery_point=0, now_ms=1)
    for number in range(10_000):
        if number == 5_000:
            _emptied(log.directory / f"{0:020d}.index")
            _emptied(log.directory / f"{0:020d}.timeindex")
        log.produced.append(memoryview(make_batch(timestamp=1_000 + number)), 0, 1)
    log.roll(1)
    for offset in (0, 2_500, 4_999, 5_001, 9_999):
        piece = log.read(offset, 100, log.log_end_offset, at_least_one=True)
        assert parse_header(piece.read()).base_offset == offset
        piece.release()
        found = offset_for_timestamp(log, 1_000 + offset, log.log_end_offset)
        assert found is not None
        assert found.offset == offset
    log.close(clean=False)


def test_a_disk_that_takes_no_index_entries_costs_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records are written, then indexed: an index that cannot be written must not undo half of an append."""
    config = LogConfig(index_interval_bytes=1, message_timestamp_after_max_ms=2**60)
    log = PartitionLog.open(tmp_path / "t-0", config, clean_shutdown=False, recovery_point=0, now_ms=1)
    real = os.open
    full = True

    def refuses_indexes(path: str | Path, flags: int, *rest: int, **named: int) -> int:
        if full and str(path).endswith("index"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(path, flags, *rest, **named)

    monkeypatch.setattr(os, "open", refuses_indexes)
    for number in range(9_000):
        assert log.produced.append(memoryview(make_batch(timestamp=number)), 0, 1).first_offset == number
    log.check()
    full = False
    log.roll(1)
    piece = log.read(4_321, 100, log.log_end_offset, at_least_one=True)
    assert parse_header(piece.read()).base_offset == 4_321
    piece.release()
    log.close(clean=False)

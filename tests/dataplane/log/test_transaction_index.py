"""The bytes of `.txnindex`, and which aborted transactions a reader hears of."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from ottla.dataplane.log import LogConfig, PartitionLog
from ottla.dataplane.log.composed import append_marker
from ottla.dataplane.log.producers.producer_snapshot import decode_snapshot, encode_snapshot
from ottla.dataplane.log.segments.aborted_transaction import AbortedTransaction
from ottla.dataplane.log.segments.transaction_index import decode_transactions
from ottla.protocol.records.record import ControlRecord, ControlType, read_control_record
from tests.dataplane.log.batches import make_batch

NOW = 1_000


def _open(folder: Path, *, clean: bool = False) -> PartitionLog:
    return PartitionLog.open(folder / "t-0", LogConfig(), clean_shutdown=clean, recovery_point=0, now_ms=NOW)


def _write(log: PartitionLog, producer_id: int, sequence: int, count: int = 1) -> None:
    batch = make_batch(count, attributes=0x10, producer=(producer_id, 0, sequence))
    log.produced.append(memoryview(batch), 0, NOW)


def _end(log: PartitionLog, producer_id: int, number: int, *, commit: bool) -> None:
    append_marker(
        log,
        producer_id,
        0,
        commit=commit,
        number=number,
        commit_index=number * 10,
        leader_epoch=0,
        now_ms=NOW,
    )


def _two_overlapping(log: PartitionLog) -> None:
    """Append two overlapping transactions: 7 writes 0-1 and 3 and is aborted at 4; 8 writes 2 and is aborted at 5."""
    _write(log, 7, 0, 2)
    _write(log, 8, 0)
    _write(log, 7, 2)
    _end(log, 7, 1, commit=False)
    _end(log, 8, 2, commit=False)


def test_the_file_is_as_kafka_writes_it(tmp_path: Path) -> None:
    log = _open(tmp_path)
    _two_overlapping(log)
    log.close(clean=True)
    data = (tmp_path / "t-0" / f"{0:020d}.txnindex").read_bytes()
    assert data == b"".join(
        struct.pack(">hqqqq", 0, producer_id, first, last, stable)
        for producer_id, first, last, stable in ((7, 0, 4, 2), (8, 2, 5, 6))
    )


def test_without_aborts_there_is_no_file(tmp_path: Path) -> None:
    log = _open(tmp_path)
    _write(log, 7, 0)
    _end(log, 7, 1, commit=True)
    _end(log, 8, 1, commit=False)
    log.roll(NOW)
    log.close(clean=True)
    assert list(tmp_path.rglob("*.txnindex")) == []


def test_a_reader_hears_of_what_overlaps(tmp_path: Path) -> None:
    log = _open(tmp_path)
    _two_overlapping(log)
    first, second = AbortedTransaction(7, 0, 4, 2), AbortedTransaction(8, 2, 5, 6)
    assert log.transactions.aborted(0, 2) == [first]
    assert log.transactions.aborted(0, 3) == [first, second]
    assert log.transactions.aborted(5, 6) == [second]
    assert log.transactions.aborted(6, 7) == []
    log.close(clean=False)


def test_readers_wait_for_the_marker_to_be_below_the_high_watermark(tmp_path: Path) -> None:
    log = _open(tmp_path)
    _two_overlapping(log)
    assert [log.transactions.last_stable_offset(offset) for offset in range(7)] == [0, 0, 0, 0, 0, 2, 6]
    assert log.transactions.last_stable_offset(4) == 0, "of a lower one, too"
    assert not log.transactions.open
    assert log.transactions.last_commit_index == 20
    log.close(clean=False)


def test_a_marker_that_is_cut_off_opens_its_transaction_again(tmp_path: Path) -> None:
    log = _open(tmp_path)
    _two_overlapping(log)
    assert log.transactions.last_stable_offset(6) == 6
    log.truncation.truncate_to(5)
    assert dict(log.transactions.open) == {8: 2}
    assert log.transactions.last_stable_offset(5) == 2
    assert log.transactions.aborted(0, 5) == [AbortedTransaction(7, 0, 4, 2)]
    assert log.transactions.last_commit_index == 10
    log.close(clean=False)


@pytest.mark.parametrize("data", [b"\0", b"\0\1" * 17, struct.pack(">hqqqq", 0, 7, 5, 4, 6)])
def test_damage_is_noticed(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_transactions(data)


def test_the_marker_can_be_read_from_the_log(tmp_path: Path) -> None:
    log = _open(tmp_path)
    _end(log, 7, 3, commit=True)
    piece = log.read(0, 1, 1, at_least_one=True)
    assert read_control_record(piece.read()) == ControlRecord(ControlType.COMMIT, 3, 30)
    piece.release()
    log.close(clean=False)


def test_a_snapshot_knows_commit_indexes_and_what_has_ended(tmp_path: Path) -> None:
    log = _open(tmp_path)
    _two_overlapping(log)
    data = encode_snapshot(log.producers)
    loaded = decode_snapshot(data)
    assert loaded.transactions.ended == log.producers.transactions.ended != ()
    assert loaded.transactions.last_commit_index == 20
    assert [(entry.marker_number, entry.marker_commit_index) for entry in loaded.entries()] == [
        (1, 10),
        (2, 20),
    ]
    for damaged in (data[:-1], data + b"\0"):
        with pytest.raises(ValueError, match=r"."):
            decode_snapshot(damaged)
    log.close(clean=False)

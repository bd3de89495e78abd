"""`ottla log dump` and `verify` on the files of a log, whole and damaged."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.main import main
from ottla.dataplane.log import LogConfig, PartitionLog
from ottla.dataplane.log.checkpoints import write_leader_epochs, write_offsets
from ottla.dataplane.log.composed import append_marker
from ottla.protocol.records.compression import Compression
from ottla.protocol.records.record import encode_batch

BATCHES, RECORDS = 40, 3


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a partition of several segments, every compression, cleanly closed."""
    folder = tmp_path / "data" / "flights-0"
    config = LogConfig(segment_bytes=2000, index_interval_bytes=300)
    log = PartitionLog.open(folder, config, clean_shutdown=False, recovery_point=0, now_ms=0)
    for number in range(BATCHES):
        records = [(b"k%d" % number, b"%d-%d" % (number, i) * 9, 10_000 + number) for i in range(RECORDS)]
        codec = list(Compression)[number % len(Compression)]
        batch = encode_batch(
            records, compression=codec, producer_id=7, producer_epoch=0, base_sequence=number * RECORDS
        )
        log.produced.append(memoryview(bytearray(batch)), 3, now_ms=20_000)
    log.close(clean=True)
    return folder


def dumped(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    assert main(["log", "dump", *words, "-o", "json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def problems(capsys: pytest.CaptureFixture[str], path: Path) -> list[str]:
    code = main(["log", "verify", str(path), "-o", "json"])
    found = json.loads(capsys.readouterr().out)
    assert code == (0 if found["ok"] else 1)
    return [f"{Path(problem['path']).name}: {problem['problem']}" for problem in found["problems"]]


def test_a_folder_is_dumped_record_by_record(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = dumped(capsys, str(folder), "-p", "--from", "10", "--to", "20")
    records = [line for line in lines if line["type"] == "record"]
    assert [record["offset"] for record in records] == list(range(10, 21))
    assert records[2] == {
        "type": "record", "offset": 12, "timestamp_ms": 10_004, "key": "k4", "value": "4-0" * 9, "headers": [],
    }  # fmt: skip
    batch = next(line for line in lines if line["type"] == "batch")
    assert (batch["offsets"], batch["crc"], batch["leader_epoch"]) == ([9, 11], "ok", 3)
    assert main(["log", "dump", str(folder), "-p"]) == 0
    assert 'offset=12  timestamp_ms=1970-01-01T00:00:10.004Z  key="k4"' in capsys.readouterr().out


def test_small_files_are_dumped(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index = next(path for path in sorted(folder.glob("*.index")) if path.stat().st_size)
    for entry in dumped(capsys, str(index)):
        assert entry["offset"] >= int(index.stem)
    (first, *_) = dumped(capsys, str(index.with_suffix(".timeindex")))
    assert first["timestamp_ms"] >= 10_000
    write_leader_epochs(folder, [(3, 0)])
    assert dumped(capsys, str(folder / "leader-epoch-checkpoint")) == [
        {"type": "epoch", "leader_epoch": 3, "start_offset": 0}
    ]
    snapshot = max(folder.glob("*.snapshot"))
    assert dumped(capsys, str(snapshot))[0]["producer_id"] == 7
    checkpoint = folder.parent / "replication-offset-checkpoint"
    write_offsets(checkpoint, {("flights", 0): 17})
    assert dumped(capsys, str(checkpoint)) == [
        {"type": "offset", "topic": "flights", "partition": 0, "offset": 17}
    ]


def test_a_whole_log_is_found_whole(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(list(folder.glob("*.log"))) > 2
    assert problems(capsys, folder) == []
    assert main(["log", "verify", str(folder.parent)]) == 0
    heading, row = capsys.readouterr().out.splitlines()
    assert heading.startswith("PATH\tSEGMENTS\tSTART-OFFSET")
    assert row.split("\t")[3:] == [str(BATCHES * RECORDS), str(BATCHES), str(BATCHES * RECORDS), "0"]


def test_kafka_fills_indexes_with_zeros(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index = next(path for path in sorted(folder.glob("*.index")) if path.stat().st_size)
    index.write_bytes(index.read_bytes() + bytes(80))
    assert problems(capsys, folder) == []


def test_a_flipped_bit_is_found(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    segment = sorted(folder.glob("*.log"))[1]
    data = bytearray(segment.read_bytes())
    data[100] ^= 1
    segment.write_bytes(data)
    (problem,) = problems(capsys, folder)
    assert problem.startswith(
        f"{segment.name}: record batch at offset {int(segment.stem)} is corrupt: CRC-32C"
    )
    (batch, *_) = dumped(capsys, str(segment), "-p")
    assert batch["crc"] == "WRONG"


def test_a_torn_end_is_found(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    segment = max(folder.glob("*.log"))
    segment.write_bytes(segment.read_bytes()[:-5])
    assert any(
        "left; " in problem and problem.startswith(segment.name) for problem in problems(capsys, segment)
    )
    assert main(["log", "dump", str(segment)]) == 1
    assert "is damaged at byte" in capsys.readouterr().err


def test_indexes_that_lie_are_found(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index = next(path for path in sorted(folder.glob("*.index")) if path.stat().st_size)
    index.write_bytes(struct.pack(">ii", 1, 17))
    times = index.with_suffix(".timeindex")
    times.write_bytes(struct.pack(">qi", 99_999, 0) + struct.pack(">qi", 5, 9))
    found = problems(capsys, folder)
    assert any("at byte 17, where no batch starts" in problem for problem in found)
    assert any("entry (5, " in problem and "does not rise above" in problem for problem in found)
    assert any("timestamp 99999 is later than all in the segment" in problem for problem in found)
    index.write_bytes(b"123")
    assert any("3 bytes, which are no entries of 8" in problem for problem in problems(capsys, folder))


def test_a_missing_segment_and_damaged_small_files_are_found(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_leader_epochs(folder, [(3, 0), (2, 5), (4, 10_000)])
    max(folder.glob("*.snapshot")).write_bytes(b"nonsense")
    found = problems(capsys, folder)
    assert any("epoch 2 from 5 does not follow epoch 3 from 0" in problem for problem in found)
    assert any("behind the end" in problem for problem in found)
    assert any(".snapshot: " in problem for problem in found)


@pytest.mark.parametrize("name", ["x.log", "notes.txt"])
def test_files_of_other_kinds_are_refused(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    path.write_text("hello")
    assert main(["log", "dump", str(path)]) == 1
    assert capsys.readouterr().err.count("\n") == 1
    assert main(["log", "verify", str(path)]) == 1
    assert main(["log", "verify", str(tmp_path)]) == 1


@pytest.fixture
def transactional(tmp_path: Path) -> Path:
    """Return a log in which producer 7 has committed offsets 0-1 and aborted 3-4."""
    folder = tmp_path / "data" / "payments-0"
    log = PartitionLog.open(folder, LogConfig(), clean_shutdown=False, recovery_point=0, now_ms=0)
    for number, commit in enumerate((True, False)):
        batch = encode_batch(
            [(None, b"12", 10_000), (None, b"13", 10_000)],
            producer_id=7, producer_epoch=number, base_sequence=0, transactional=True,
        )  # fmt: skip
        log.produced.append(memoryview(bytearray(batch)), 3, now_ms=20_000)
        append_marker(
            log, 7, number + 1,
            commit=commit, number=number + 1, commit_index=40 + number, leader_epoch=3, now_ms=20_000,
        )  # fmt: skip
    log.close(clean=True)
    return folder


def test_transactions_are_dumped(transactional: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = dumped(capsys, str(transactional), "-p")
    markers = [line for line in lines if line["type"] == "record" and "control" in line]
    assert [
        (marker["offset"], marker["control"], marker["number"], marker["commit_index"]) for marker in markers
    ] == [
        (2, "commit", 1, 40),
        (5, "abort", 2, 41),
    ]
    (index,) = transactional.glob("*.txnindex")
    assert dumped(capsys, str(index)) == [
        {"type": "aborted", "producer_id": 7, "first_offset": 3, "last_offset": 5, "last_stable_offset": 6}
    ]
    (producer,) = dumped(capsys, str(sorted(transactional.glob("*.snapshot"))[-1]))
    assert (producer["marker_number"], producer["marker_commit_index"]) == (2, 41)


def test_an_index_of_aborted_transactions_that_says_too_much_is_found(
    transactional: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (index,) = transactional.glob("*.txnindex")
    assert problems(capsys, transactional) == []
    index.write_bytes(struct.pack(">hqqqq", 0, 7, 0, 2, 3) + struct.pack(">hqqqq", 0, 8, 3, 5, 6))
    assert problems(capsys, transactional) == [
        f"{index.name}: producer 8 is said to have a marker at 5, and has none"
    ]
    index.write_bytes(b"short")
    assert problems(capsys, transactional) == [f"{index.name}: 5 bytes are no entries of 34"]

"""Kafka's DumpLogSegments reads the log's files, and finds no fault."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.dataplane.log import LogConfig, PartitionLog
from ottla.dataplane.log.composed import append_marker
from ottla.protocol.records.compression import Compression
from ottla.protocol.records.record import encode_batch
from tests import java

DUMP = "org.apache.kafka.tools.DumpLogSegments"
BATCHES, RECORDS = 60, 3

pytestmark = [
    pytest.mark.java,
    java.needs_java,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("test_kafka_tools"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with several segments, every compression, two epochs, two producers; truncated once and cleanly
    closed.
    """
    folder = tmp_path / "flights-0"
    config = LogConfig(segment_bytes=4000, index_interval_bytes=300)
    log = PartitionLog.open(folder, config, clean_shutdown=False, recovery_point=0, now_ms=0)
    for number in range(BATCHES + 2):
        records = [
            (b"tail-%d" % number, b"%d-%d" % (number, i) * 9, 10_000 + number * 10 + i)
            for i in range(RECORDS)
        ]
        batch = encode_batch(
            records,
            compression=list(Compression)[number % len(Compression)],
            producer_id=70 + number % 2,
            producer_epoch=4,
            base_sequence=number // 2 * RECORDS,
        )
        log.produced.append(memoryview(bytearray(batch)), 3 if number < BATCHES // 2 else 5, now_ms=20_000)
    log.truncation.truncate_to(BATCHES * RECORDS)
    log.close(clean=True)
    return folder


Dump = Callable[..., str]


@pytest.fixture
def dump(tools: java.Tools) -> Dump:
    """Return a function that dumps the files of a pattern in a folder."""

    def run(folder: Path, pattern: str, *flags: str) -> str:
        files = ",".join(str(path) for path in sorted(folder.glob(pattern)))
        return tools.run(DUMP, "--files", files, *flags)

    return run


def test_records(folder: Path, dump: Dump) -> None:
    assert len(list(folder.glob("*.log"))) > 2
    text = dump(folder, "*.log", "--deep-iteration", "--print-data-log")
    assert [int(offset) for offset in re.findall(r"^\| offset: (\d+)", text, re.M)] == list(
        range(BATCHES * RECORDS)
    )
    assert text.count("isvalid: true") == BATCHES
    assert "isvalid: false" not in text
    assert set(re.findall(r"partitionLeaderEpoch: (\d+)", text)) == {"3", "5"}
    assert "payload: 7-27-2" in text


def test_indexes(folder: Path, dump: Dump) -> None:
    for flag in ("--index-sanity-check", "--verify-index-only"):
        text = dump(folder, "*.index", flag)
        assert not re.search("mismatch|corrupt|exception|Mismatches", text, re.I), text
    text = dump(folder, "*.index", "--verify-index-only") + dump(folder, "*.timeindex", "--verify-index-only")
    assert not re.search("mismatch|out of order|larger timestamp|exception", text, re.I), text
    assert dump(folder, "*.index").count("position:") > 20
    assert dump(folder, "*.timeindex").count("timestamp:") > 20


def test_producer_snapshots(folder: Path, dump: Dump) -> None:
    newest = sorted(folder.glob("*.snapshot"))[-1]
    assert newest.name == f"{BATCHES * RECORDS:020d}.snapshot"
    text = dump(folder, newest.name)
    rows = re.findall(r"producerId: (\d+) producerEpoch: (\d+).*lastSequence: (\d+)|", text)
    found = {row for row in rows if row[0]}
    last = BATCHES // 2 * RECORDS - 1
    assert {(row[0], row[1]) for row in found} == {("70", "4"), ("71", "4")}, text
    assert f"lastSequence: {last}" in text, text


def test_transactions(tmp_path: Path, dump: Dump) -> None:
    """The folder has markers, the index of aborted transactions, and an open transaction in the snapshot."""
    folder = tmp_path / "payments-0"
    log = PartitionLog.open(folder, LogConfig(), clean_shutdown=False, recovery_point=0, now_ms=0)
    for producer, commit in ((70, True), (71, False), (72, None)):
        batch = encode_batch(
            [(None, b"%d" % producer, 10_000)],
            producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True,
        )  # fmt: skip
        log.produced.append(memoryview(bytearray(batch)), 3, now_ms=20_000)
        if commit is not None:
            append_marker(
                log,
                producer,
                1,
                commit=commit,
                number=9,
                commit_index=producer,
                leader_epoch=3,
                now_ms=20_000,
            )
    log.close(clean=True)
    text = dump(folder, "*.log", "--deep-iteration")
    assert re.findall(r"endTxnMarker: (\w+) coordinatorEpoch: (\d+)", text) == [
        ("COMMIT", "9"),
        ("ABORT", "9"),
    ]
    assert "isvalid: false" not in text
    text = dump(folder, "*.txnindex")
    assert "producerId: 71 firstOffset: 2 lastOffset: 3 lastStableOffset: 4" in text, text
    newest = sorted(folder.glob("*.snapshot"))[-1]
    text = dump(folder, newest.name)
    assert re.search(r"producerId: 72 .*currentTxnFirstOffset: (Optional\[4\]|OptionalLong\[4\])", text), text

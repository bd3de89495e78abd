"""Data folders with logs of many kinds, for tests of closing and opening."""

from __future__ import annotations

from pathlib import Path

from ottla.dataplane.log import LogConfig, PartitionLog
from ottla.dataplane.log.composed import append_marker
from ottla.dataplane.log.producers.producer_snapshot import encode_snapshot
from ottla.dataplane.storage.directory import LogDirectory
from tests.dataplane.log.batches import make_batch

TOPIC = "flights"
TOPIC_ID = bytes(range(16))
CONFIG = LogConfig(segment_bytes=2000, index_interval_bytes=100)
NOW_MS = 1_000
TRANSACTIONAL = 1 << 4


def open_folder(path: Path) -> LogDirectory:
    """Open a folder with all its logs."""
    directory = LogDirectory.open(path, "ottla-1", 2, new_directory_id=b"d" * 16)
    directory.load({}, CONFIG, now_ms=NOW_MS, threads=1)
    return directory


def new_log(directory: LogDirectory, index: int, batches: int = 0) -> PartitionLog:
    """Make a log with a number of batches."""
    log = directory.create(TOPIC, index, TOPIC_ID, CONFIG, now_ms=NOW_MS)
    for number in range(batches):
        append(log, b"%d" % number * 20)
    return log


def append(log: PartitionLog, payload: bytes = b"payload", epoch: int = 1) -> None:
    log.produced.append(memoryview(make_batch(payload=payload)), epoch, NOW_MS)


def produce(log: PartitionLog, producer_id: int, sequence: int, *, transactional: bool = False) -> None:
    attributes = TRANSACTIONAL if transactional else 0
    batch = make_batch(producer=(producer_id, 0, sequence), attributes=attributes)
    log.produced.append(memoryview(batch), 1, NOW_MS)


def end_transaction(log: PartitionLog, producer_id: int, number: int, *, commit: bool) -> None:
    append_marker(
        log, producer_id, 0, commit=commit, number=number, commit_index=number, leader_epoch=1, now_ms=NOW_MS
    )


def fill(directory: LogDirectory) -> None:
    """Make logs of every kind, each named after its history."""
    new_log(directory, 0)
    new_log(directory, 1, 1)
    new_log(directory, 2, 60)
    new_log(directory, 3, 3).leader_epochs.assign(4, 3)  # a leadership that has written nothing
    for number in range(8):
        append(new_log(directory, 4), epoch=number)
    new_log(directory, 5, 60).advance_log_start_offset(40)
    new_log(directory, 6, 60).truncation.truncate_to(7)
    new_log(directory, 7, 5).truncation.truncate_fully_and_start_at(100)
    plain = new_log(directory, 8)
    for sequence in range(7):
        produce(plain, 11, sequence)
    mixed = new_log(directory, 9)
    for number in range(12):
        produce(mixed, 20 + number, 0, transactional=True)
        append(mixed, b"x" * 200)
        end_transaction(mixed, 20 + number, number, commit=number % 3 == 0)
    produce(mixed, 99, 0, transactional=True)
    many = new_log(directory, 10)
    for producer in range(200):
        produce(many, producer, 0)
    behind_a_gap = new_log(directory, 11, 3)
    behind_a_gap.truncation.leave_out_to(50)
    append(behind_a_gap)
    for log in directory.logs.values():
        for path in log.doomed:
            path.unlink()  # as is done from time to time
        log.doomed.clear()


def state(log: PartitionLog) -> dict[str, object]:
    """Return all state that opening a log determines."""
    log.check()
    return {
        "ends": (log.log_start_offset, log.log_end_offset, log.recovery_point),
        "epochs": log.leader_epochs.entries,
        "producers": encode_snapshot(log.producers),
        "transactions": (dict(log.transactions.open), log.producers.transactions.last_offset),
        "gaps": (log.is_contiguous, log.segment_list.has_gaps),
        "is idle": (log.needs_flush, log.needs_settling),
        "segments": [
            (
                segment.base_offset,
                segment.size,
                segment.synced,
                [
                    index.fields(n)
                    for index in (segment.offset_index, segment.time_index)
                    for n in range(len(index))
                ],
                segment.transaction_index.transactions(),
                segment.transaction_index.is_incomplete,
            )
            for segment in log.segments
        ],
        "last segment": (
            log.segments[-1].first_timestamp,
            log.segments[-1].max_timestamp,
            log.segments[-1].max_timestamp_offset,
            log.segments[-1].since_index_entry,
            log.segments[-1].created_ms,
        ),
    }

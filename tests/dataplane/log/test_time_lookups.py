"""Lookups of offsets by time read little of a log, wherever it starts and its readers have to stop."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from ottla.dataplane.log import LogConfig, PartitionLog
from ottla.dataplane.log.timestamps import max_timestamp_offset, offset_for_timestamp
from tests.counted_calls import counted_calls

from .batches import make_batch

NOW = 1_700_000_000_000
BATCHES = 4_000


@pytest.fixture
def log(tmp_path: Path) -> PartitionLog:
    """Return a log with one segment of single records, each a millisecond later than the previous."""
    opened = PartitionLog.open(
        tmp_path / "t-0", LogConfig(), clean_shutdown=True, recovery_point=0, now_ms=NOW
    )
    for number in range(BATCHES):
        opened.produced.append(memoryview(make_batch(1, b"v", timestamp=NOW + number)), 0, NOW)
    return opened


def test_the_latest_record_below_the_high_watermark(log: PartitionLog) -> None:
    """While records come, the latest of all is above the high watermark."""
    with counted_calls() as calls:
        found = max_timestamp_offset(log, BATCHES - 1)
    assert found == (NOW + BATCHES - 2, BATCHES - 2, 0)
    assert calls.count < BATCHES
    log.close(clean=False)


def test_a_time_before_records_that_were_deleted(log: PartitionLog) -> None:
    log.advance_log_start_offset(BATCHES - 5)
    with counted_calls() as calls:
        found = offset_for_timestamp(log, NOW + 1, BATCHES), max_timestamp_offset(log, BATCHES - 1)
    assert found == ((NOW + BATCHES - 5, BATCHES - 5, 0), (NOW + BATCHES - 2, BATCHES - 2, 0))
    assert calls.count < BATCHES
    log.close(clean=False)


@pytest.mark.parametrize("seed", range(20))
def test_the_latest_record_of_any_part_of_a_log(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    config = LogConfig(segment_bytes=1 << 20 if seed % 2 else 4_000, index_interval_bytes=300)
    log = PartitionLog.open(tmp_path / "t-0", config, clean_shutdown=True, recovery_point=0, now_ms=NOW)
    times: list[int] = []

    def append(count: int) -> None:
        for _ in range(count):
            times.append(NOW + chance.randrange(1_000))
            log.produced.append(memoryview(make_batch(1, b"v", timestamp=times[-1])), 0, NOW)

    append(150)
    del times[120:]
    log.truncation.truncate_to(120)
    append(30)
    for start in (0, 40, 110):
        log.advance_log_start_offset(start)
        for upto in range(start + 1, len(times) + 1):
            latest = max(times[start:upto])
            offset = times.index(latest, start)
            assert max_timestamp_offset(log, upto) == (latest, offset, 0)
    log.close(clean=False)

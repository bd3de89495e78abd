"""The calls of Python that a read from a log costs."""

from __future__ import annotations

from pathlib import Path

from ottla.dataplane.log import LogConfig, PartitionLog
from tests.counted_calls import counted_calls
from tests.dataplane.log.batches import make_batch


def test_a_read_of_one_batch_reads_its_header_alone(tmp_path: Path) -> None:
    log = PartitionLog.open(tmp_path / "t-0", LogConfig(), clean_shutdown=False, recovery_point=0, now_ms=1)
    for number in range(20):
        log.produced.append(memoryview(make_batch(timestamp=1_000 + number)), 0, 1)
    end = log.log_end_offset
    log.read(5, 1, end, at_least_one=True).release()
    with counted_calls() as calls:
        piece = log.read(5, 1, end, at_least_one=True)
    # The cost before walks chose the size of their reads.
    assert calls.count <= 56, calls.count
    assert piece.first_offset == 5
    piece.release()
    log.close(clean=False)

"""The event loop's cost of an append, and of a read at the tail: `python -m benchmarks.log_append`."""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ottla.dataplane.log import LogConfig, PartitionLog
from ottla.protocol.records.record import encode_batch

SIZES = (1024, 16 * 1024, 64 * 1024)
_RECORD_BYTES = 1010


def make_batch(size: int, sequence: int) -> bytearray:
    """Make an idempotent batch of records of 1 KB, about `size` bytes in all. `sequence` is that of the batch."""
    count = max(1, size // _RECORD_BYTES)
    records = [(None, bytes(1000), 1_000)] * count
    return bytearray(encode_batch(records, producer_id=7, producer_epoch=0, base_sequence=sequence * count))


def measure(size: int, total_bytes: int, folder: Path) -> tuple[float, float, float, float]:
    """Return microseconds: append as leader and as follower, read of the newest batch and far before the tail."""
    count = min(20_000, max(200, total_bytes // size))
    leader = PartitionLog.open(folder / "l-0", LogConfig(), clean_shutdown=False, recovery_point=0, now_ms=0)
    follower = PartitionLog.open(
        folder / "f-0", LogConfig(), clean_shutdown=False, recovery_point=0, now_ms=0
    )
    batches = [memoryview(make_batch(size, sequence)) for sequence in range(count)]
    start = time.perf_counter()
    for batch in batches:
        leader.produced.append(batch, 0, 1_000)
    append_us = (time.perf_counter() - start) / count * 1e6
    start = time.perf_counter()
    for batch in batches:
        follower.append_as_follower(batch, 1_000)
    follow_us = (time.perf_counter() - start) / count * 1e6
    end = leader.log_end_offset
    start = time.perf_counter()
    for _ in range(10_000):
        leader.read(end - 1, 1 << 20, end, at_least_one=True).release()
    tails = (time.perf_counter() - start) / 10_000 * 1e6
    start = time.perf_counter()
    for number in range(2_000):
        leader.read(number * 7919 % (end - 1), 64 * 1024, end, at_least_one=True).release()
    behind = (time.perf_counter() - start) / 2_000 * 1e6
    leader.close(clean=False)
    follower.close(clean=False)
    return append_us, follow_us, tails, behind


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--directory", type=Path, help="where to write (default: the system's temporary folder)"
    )
    parser.add_argument("--total", type=int, default=256 << 20, help="bytes to append per size")
    options = parser.parse_args()
    table = Table(title="log: microseconds per call (page cache, one idempotent batch per append)")
    for name in ("batch", "append, leader", "MB/s", "append, follower", "read at tail", "read behind"):
        table.add_column(name, justify="right")
    for size in SIZES:
        with tempfile.TemporaryDirectory(dir=options.directory) as folder:
            append, follow, tail, behind = measure(size, options.total, Path(folder))
        figures = (append, size / append, follow, tail, behind)
        table.add_row(f"{size // 1024} KB", *(f"{figure:.1f}" for figure in figures))
    Console().print(table)


if __name__ == "__main__":
    main()

"""Speed of compacting one log, and the memory of the child process: `python -m benchmarks.compaction [MB] [keys]`."""

from __future__ import annotations

import random
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ottla.dataplane.log import LogConfig, PartitionLog
from ottla.dataplane.log.compaction.job import (
    CleaningFailed,
    CleaningJob,
    GroupCleaned,
    LogCleaned,
    decode_reply,
)
from ottla.protocol.records.compression import Compression
from ottla.protocol.records.record import encode_batch

RECORDS_PER_BATCH = 100
SEGMENT_BYTES = 32 << 20


def fill(log: PartitionLog, megabytes: int, keys: int, value_bytes: int, codec: Compression) -> None:
    """Write random updates of `keys` keys."""
    chance = random.Random(7)
    values = [chance.randbytes(value_bytes // 2).hex().encode() for _ in range(50)]
    while log.size < megabytes << 20:
        records = [
            (b"key-%012d" % chance.randrange(keys), values[chance.randrange(50)], 1_000)
            for _ in range(RECORDS_PER_BATCH)
        ]
        batch = bytearray(encode_batch(records, compression=codec))
        struct.pack_into(">q", batch, 0, log.log_end_offset)
        log.append_as_follower(memoryview(batch), 0)
    log.roll(0)


def compact(log: PartitionLog) -> tuple[float, int, int, int]:
    """Return seconds, bytes before, bytes after, and the child's largest resident size in KiB."""
    job = CleaningJob(
        directory=log.directory,
        segments=[(segment.base_offset, segment.size) for segment in log.segments],
        first_dirty_offset=0,
        upper_bound=log.segments[-1].base_offset,
        last_stable_offset=log.log_end_offset,
        now_ms=2_000,
        delete_retention_ms=1_000,
        segment_bytes=SEGMENT_BYTES,
        segment_index_bytes=10 << 20,
        index_interval_bytes=4096,
        producers={},
    )
    code = (
        "import os, runpy, sys; sys.argv = ['worker', str(os.getppid())]; "
        "runpy.run_module('ottla.dataplane.log.compaction.worker', run_name='__main__')"
    )
    before = after = 0
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        started = time.perf_counter()
        child.stdin.write(job.encode())
        child.stdin.flush()
        for line in child.stdout:
            reply = decode_reply(line)
            if isinstance(reply, GroupCleaned):
                before, after = before + reply.bytes_before, after + reply.bytes_after
            elif isinstance(reply, CleaningFailed):
                raise RuntimeError(reply.reason)
            elif isinstance(reply, LogCleaned):
                break
        elapsed = time.perf_counter() - started
        status = Path(f"/proc/{child.pid}/status").read_text()
        child.stdin.close()
    peak = next(int(row.split()[1]) for row in status.splitlines() if row.startswith("VmHWM"))
    return elapsed, before, after, peak


def main() -> None:
    """Print a line for each kind of log."""
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    keys = int(sys.argv[2]) if len(sys.argv) > 2 else 10_000
    for codec in (Compression.NONE, Compression.LZ4, Compression.ZSTD):
        for value_bytes in (100, 1000):
            with tempfile.TemporaryDirectory() as folder:
                config = LogConfig(segment_bytes=SEGMENT_BYTES, cleanup_policy="compact")
                log = PartitionLog.open(
                    Path(folder) / "t-0", config, clean_shutdown=False, recovery_point=0, now_ms=0
                )
                fill(log, megabytes, keys, value_bytes, codec)
                records = log.log_end_offset
                elapsed, before, after, peak = compact(log)
                log.close(clean=False)
            print(
                f"{codec.name.lower():5} values of {value_bytes:4} bytes: {before / elapsed / 1e6:6.1f} MB/s, "
                f"{records / elapsed / 1e3:5.0f} k records/s, {before >> 20} to {after >> 20} MiB, "
                f"{peak / 1024:.0f} MiB resident"
            )


if __name__ == "__main__":
    main()

"""Memory of the locks of share groups: share-partitions whose windows are full, and in which nothing happens.

    python -m benchmarks.share_locks [--partitions 1000] [--locks 2000] [--record FILE]

Each row is one shape of windows, made by the pure core in a process of its own. The readings are the growth of its
resident memory in MB, the bytes for each locked record, and the microseconds of CPU that each record took.

    batches         one member holds all records, in batches of 500
    singles         two members took the records in turn, one by one, so that each record has a lock of its own
    keys            like batches, with `ottla.share.ordering=key`, and all keys differ
    one key         the same, and all records but the first wait for their key
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import time
from array import array
from collections.abc import Callable, Mapping
from multiprocessing import get_context
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ottla.dataplane.share.key_order import ReadKeys
from ottla.dataplane.share.limits import AcquireMode, ShareLimits
from ottla.dataplane.share.partition import SharePartition

from .rounds import record
from .scaling import memory_mb

BATCH = 500
MEMBERS = ("3f1c1c6e-7a53-4a0b-9d2c-0d9a6a1f0001", "3f1c1c6e-7a53-4a0b-9d2c-0d9a6a1f0002")


def taken(share: SharePartition, member: str, last: int, now_ms: int) -> None:
    """Acquire all records up to an offset for a member."""
    first = share.next_fetch_offset()
    share.acquire(member, first, [(first, last)], last + 1 - first, AcquireMode.RECORD_LIMIT, now_ms)


def batches(locks: int) -> SharePartition:
    share = SharePartition(ShareLimits(record_locks=locks), 0)
    for first in range(0, locks, BATCH):
        taken(share, MEMBERS[0], min(first + BATCH, locks) - 1, first)
    return share


def singles(locks: int) -> SharePartition:
    share = SharePartition(ShareLimits(record_locks=locks), 0)
    for offset in range(locks):
        taken(share, MEMBERS[offset % 2], offset, 10_000 + offset)
    return share


def ordered(locks: int, hashes: array[int]) -> SharePartition:
    share = SharePartition(ShareLimits(record_locks=locks, is_ordered=True), 0)
    share.learn_keys(ReadKeys(0, locks, array("q", range(locks)), hashes))
    taken(share, MEMBERS[0], locks - 1, 0)
    return share


def keys(locks: int) -> SharePartition:
    return ordered(locks, array("q", (hash(b"%d" % number) for number in range(locks))))


def one_key(locks: int) -> SharePartition:
    return ordered(locks, array("q", [7] * locks))


SHAPES: Mapping[str, Callable[[int], SharePartition]] = {
    "batches": batches,
    "singles": singles,
    "keys": keys,
    "one key": one_key,
}


def measure(shape: str, partitions: int, locks: int) -> dict[str, object]:
    """Measure one row, in a separate process."""
    make = SHAPES[shape]
    make(locks)
    gc.collect()
    before_mb, began_s = memory_mb(os.getpid()), time.process_time()
    made = [make(locks) for _ in range(partitions)]
    used_s = time.process_time() - began_s
    gc.collect()
    grown_mb = memory_mb(os.getpid()) - before_mb
    records = sum(share.unfinished_count for share in made)
    assert records == partitions * locks
    return {
        "shape": shape,
        "mb": round(grown_mb, 1),
        "bytes_each": round(grown_mb * 1e6 / records, 1),
        "us_each": round(used_s * 1e6 / records, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--partitions", type=int, default=1_000)
    parser.add_argument("--locks", type=int, default=2_000)
    parser.add_argument("--record", type=Path)
    arguments = parser.parse_args()
    rows = []
    for shape in SHAPES:
        with get_context("spawn").Pool(1) as process:
            rows.append(process.apply(measure, (shape, arguments.partitions, arguments.locks)))
        print(json.dumps(rows[-1]), flush=True)
    table = Table(*rows[0])
    for row in rows:
        table.add_row(*map(str, row.values()))
    Console(width=100).print(table)
    if arguments.record is not None:
        record(arguments.record, load_average=round(os.getloadavg()[0], 1), rows=rows)


if __name__ == "__main__":
    main()

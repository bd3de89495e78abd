"""What the controller of the quorum costs by the number of partitions, in one process: no disk, no network.

    python -m benchmarks.controller_size [--partitions 1000 10000 50000 100000] [--record FILE]

Three brokers hold all replicas (replication factor 3). Told are CPU seconds of: creating topics of 1,000 partitions, a
pass of the garbage collector over everything, making a snapshot, reading it, and fencing a broker that leads a third;
the memory and the bytes of a snapshot for a partition; and the bytes that the fence sends to each broker.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.table import Table

from ottla.metadata_quorum.raft.collection import uncollected
from ottla.metadata_quorum.state.controller import Controller
from ottla.protocol.messages.broker_commands import FenceBroker
from ottla.protocol.messages.metadata_records import encode_record
from tests.metadata_quorum.state.harness import ControllerWithBrokers, topic

from .rounds import record
from .scaling import memory_mb

PARTITIONS_OF_TOPIC = 1_000
R = TypeVar("R")


def timed(act: Callable[[], R]) -> tuple[float, R]:
    """CPU seconds, and what came of it."""
    began = time.process_time()
    result = act()
    return time.process_time() - began, result


def measure(partitions: int) -> dict[str, object]:
    """One row, in a process of its own."""
    cluster = ControllerWithBrokers(3)
    gc.collect()
    gc.freeze()
    before_mb = memory_mb(os.getpid())
    topics = [f"t{number}" for number in range(partitions // PARTITIONS_OF_TOPIC)]
    create_s, _ = timed(lambda: [cluster.create(topic(name, PARTITIONS_OF_TOPIC, 3)) for name in topics])
    collect_s, _ = timed(gc.collect)
    memory = memory_mb(os.getpid()) - before_mb
    snapshot_s, chunks = timed(lambda: list(cluster.machine.snapshot()))
    restore_s, _ = timed(lambda: Controller().restore(chunks))
    fence = FenceBroker(broker_id=1, broker_epoch=cluster.epoch(1))
    gc.collect()
    with uncollected():  # as the node does
        fence_s, applied = timed(lambda: cluster.apply(fence))
    encode_s, sent = timed(lambda: [encode_record(one) for _, one in applied.records])
    return {
        "partitions": partitions,
        "create_s": round(create_s, 3),
        "collect_ms": round(1000 * collect_s, 1),
        "snapshot_s": round(snapshot_s, 3),
        "restore_s": round(restore_s, 3),
        "fence_ms": round(1000 * fence_s, 1),
        "fence_encode_ms": round(1000 * encode_s, 1),
        "kb_each": round(1000 * memory / partitions, 2),
        "snapshot_bytes_each": round(sum(map(len, chunks)) / partitions, 1),
        "fence_bytes_each": round(sum(map(len, sent)) / partitions, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--partitions", type=int, nargs="+", default=[1_000, 10_000, 50_000, 100_000])
    parser.add_argument("--record", type=Path)
    arguments = parser.parse_args()
    rows = []
    for partitions in arguments.partitions:
        with get_context("spawn").Pool(1) as process:
            rows.append(process.apply(measure, (partitions,)))
        print(json.dumps(rows[-1]), flush=True)
    table = Table(*rows[0])
    for row in rows:
        table.add_row(*map(str, row.values()))
    Console(width=140).print(table)
    if arguments.record is not None:
        record(arguments.record, load_average=round(os.getloadavg()[0], 1), rows=rows)


if __name__ == "__main__":
    main()

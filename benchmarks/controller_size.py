"""Costs of the quorum's controller by the number of partitions, in one process without disk and network.

    python -m benchmarks.controller_size [--partitions 1000 10000 50000 100000] [--record FILE]

Three brokers hold all replicas (replication factor 3). The readings are CPU seconds of these steps: creating topics of
1,000 partitions, a pass of the garbage collector over all objects, making a snapshot, reading it, fencing a broker that
leads a third (until the records are in the feed), and encoding that feed for brokers, piece by piece. Further readings:
memory and snapshot bytes for each partition, and the bytes that the fence sends to each broker.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import time
from collections.abc import Callable
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

from rich.console import Console
from rich.table import Table

from ottla.metadata_quorum.broker_sessions import PUSH_BYTES_MAX, PUSH_RECORDS_MAX
from ottla.metadata_quorum.feed import MetadataFeed
from ottla.metadata_quorum.publication import Publication
from ottla.metadata_quorum.state.controller import Controller
from ottla.network.garbage_collection import gc_paused
from ottla.protocol.messages.broker_commands import FenceBroker
from ottla.protocol.messages.quorum_session import FeedRecords, encode_session_message
from tests.metadata_quorum.state.harness import ControllerWithBrokers, topic

from .rounds import record
from .scaling import memory_mb

PARTITIONS_OF_TOPIC = 1_000
RECORDS_MAX = 1_000_000
R = TypeVar("R")


def timed(act: Callable[[], R]) -> tuple[float, R]:
    """Return CPU seconds, and the result."""
    began = time.process_time()
    result = act()
    return time.process_time() - began, result


def publish_after(cluster: ControllerWithBrokers, fence: FenceBroker, publication: Publication) -> None:
    """Apply a fence, and publish its changes."""
    cluster.apply(fence)
    publication.publish()


def published(cluster: ControllerWithBrokers) -> tuple[Publication, MetadataFeed]:
    """Connect the controller to the feed as a quorum node does, but without sessions."""
    machine = cluster.machine
    feed = MetadataFeed(machine.image.offset, capacity_records=RECORDS_MAX)
    nobody: Any = SimpleNamespace(active=False, applied_index=1)
    nobody.note = nobody.noted = nobody.image_changed = nobody.changed = nobody.push = lambda *_: None
    publication = Publication(machine, nobody, feed, nobody, nobody, nobody, nobody, time.monotonic)
    publication.publish()
    machine.on_changes = publication.note
    return publication, feed


def told(feed: MetadataFeed, first_offset: int) -> list[tuple[float, bytes]]:
    """Return the pieces of the feed that are sent to brokers, each with its CPU seconds."""
    pieces = []
    while first_offset < feed.end_offset:
        seconds, (first_offset, sent) = timed(partial(piece, feed, first_offset))
        pieces.append((seconds, sent))
    return pieces


def piece(feed: MetadataFeed, first_offset: int) -> tuple[int, bytes]:
    """Return the end of a piece, and its bytes."""
    read = feed.read(first_offset, 2, max_records=PUSH_RECORDS_MAX, max_bytes=PUSH_BYTES_MAX)
    message = FeedRecords(first_offset=first_offset, end_offset=read.end_offset, records=read.records)
    return read.end_offset, encode_session_message(message)


def measure(partitions: int) -> dict[str, object]:
    """Measure one row, in a separate process."""
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
    publication, feed = published(cluster)
    offset = feed.end_offset
    gc.collect()
    with gc_paused():  # as the node does
        fence_s, _ = timed(partial(publish_after, cluster, fence, publication))
        pieces = told(feed, offset)
    return {
        "partitions": partitions,
        "create_s": round(create_s, 3),
        "collect_ms": round(1000 * collect_s, 1),
        "snapshot_s": round(snapshot_s, 3),
        "restore_s": round(restore_s, 3),
        "fence_ms": round(1000 * fence_s, 1),
        "told_ms": round(1000 * sum(seconds for seconds, _ in pieces), 1),
        "piece_ms_max": round(1000 * max(seconds for seconds, _ in pieces), 2),
        "kb_each": round(1000 * memory / partitions, 2),
        "snapshot_bytes_each": round(sum(map(len, chunks)) / partitions, 1),
        "fence_bytes_each": round(sum(len(sent) for _, sent in pieces) / partitions, 1),
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

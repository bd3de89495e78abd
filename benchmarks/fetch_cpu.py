"""Data that a broker serves to consumers per second of CPU, compared with a C server that only calls sendfile.

    python -m benchmarks.fetch_cpu [--rounds N] [--record FILE]

The topic is in the page cache. The C server sends the broker's own segment, in slices of equal size: slices that end on
page boundaries would cost the kernel far less. The runs are made in pairs. The table has medians over the rounds, and
medians of the ratio within each pair.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.headers import encode_request

from .clusters import Cluster, ottla_cluster
from .produce_cpu import produce_frame
from .reference_runs import Load, Pair, arguments, build, reference_server, replay, report

VERSION = 11
BATCH_BYTES = 64 * 1024
BATCHES = 4000
RECORDS_PER_BATCH = BATCH_BYTES // 1010
SIZES = {64 * 1024: 3000, 1024 * 1024: 250}


def fetch_frames(topic: str, size: int) -> bytes:
    """Make requests that walk through the topic in steps of `size`, without fetch sessions."""
    batches_per_fetch = max(size // BATCH_BYTES, 1)
    frames = []
    for first in range(0, BATCHES - batches_per_fetch, batches_per_fetch):
        partition = FetchPartition(
            partition=0, fetch_offset=first * RECORDS_PER_BATCH, partition_max_bytes=size
        )
        request = FetchRequest(
            max_wait_ms=100,
            min_bytes=1,
            max_bytes=size,
            session_epoch=-1,
            topics=[FetchTopic(topic=topic, partitions=[partition])],
        )
        frames.append(encode_request(request, VERSION, 1, "benchmark"))
    return b"".join(frames)


def fill(folder: Path, cluster: Cluster, topic: str) -> tuple[Path, int]:
    """Produce the topic's content; return the file that holds it, and the size of each batch in it."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    frame, batch_offset = produce_frame(topic, BATCH_BYTES)
    broker = cluster.brokers[0]
    load = Load(connections=1, count=BATCHES)
    replay(folder, broker.pid, broker.port, frame, load, BATCH_BYTES, writes=True)
    (segment,) = (folder / "cluster").glob(f"**/{topic}-0/*.log")
    return segment, len(frame) - 4 - batch_offset


def measure(folder: Path, cluster: Cluster, segment: Path, batch_bytes: int, size: int) -> Pair:
    """Measure one pair of runs."""
    slice_bytes = size // batch_bytes * batch_bytes
    frames = fetch_frames("fetch", size)
    load = Load(count=SIZES[size])
    broker = cluster.brokers[0]
    ours = replay(folder, broker.pid, broker.port, frames, load, slice_bytes, writes=False)
    with reference_server(folder / "fetch_server", segment, slice_bytes) as (pid, port):
        theirs = replay(folder, pid, port, frames, load, slice_bytes, writes=False)
    return Pair(theirs, ours)


def main() -> int:
    """Measure and print one table."""
    args = arguments(__doc__)
    pairs: dict[int, list[Pair]] = {size: [] for size in SIZES}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        build(folder)
        with ottla_cluster(folder / "cluster", brokers=1, quorum=1) as cluster:
            segment, batch_bytes = fill(folder, cluster, "fetch")
            for _ in range(args.rounds):
                for size in SIZES:
                    pairs[size].append(measure(folder, cluster, segment, batch_bytes, size))
    report("fetch", pairs, args.record)
    return 0


if __name__ == "__main__":
    sys.exit(main())

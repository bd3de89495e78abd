"""MB per second of CPU that a broker serves to consumers, against a C server that only calls sendfile.

    python -m benchmarks.fetch_cpu

The topic is in the page cache. Both run in turn, three times; the best reading of each counts.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rich.console import Console
from rich.table import Table

from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.headers import encode_request

from .clusters import Cluster, ottla_cluster
from .produce_cpu import best, produce_frame
from .reference_runs import Load, Reading, build, reference_server, replay

VERSION = 11
ROUNDS = 3
BATCH_BYTES = 64 * 1024
BATCHES = 4000
RECORDS_PER_BATCH = BATCH_BYTES // 1010
SIZES = {64 * 1024: 6000, 1024 * 1024: 500}


def fetch_frames(topic: str, size: int) -> bytes:
    """Requests that walk through the topic in steps of `size`, without fetch sessions."""
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


def fill(folder: Path, cluster: Cluster, topic: str) -> None:
    """Produce the topic's content."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    frame, _ = produce_frame(topic, BATCH_BYTES)
    broker = cluster.brokers[0]
    replay(folder, broker.pid, broker.port, frame, Load(connections=1, count=BATCHES), BATCH_BYTES)


def main() -> int:
    """Measure and print one table."""
    table = Table("fetch", "server", "CPU us/request", "MB per CPU second", "p50 us", "p99 us", "ratio")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        build(folder)
        with (folder / "file").open("wb") as file:
            for _ in range(BATCHES):
                file.write(bytes(BATCH_BYTES))
        with ottla_cluster(folder / "cluster", brokers=1, quorum=1) as cluster:
            fill(folder, cluster, "fetch")
            for size, count in SIZES.items():
                frames = fetch_frames("fetch", size)
                load = Load(count=count)
                ours: list[Reading] = []
                theirs: list[Reading] = []
                for _ in range(ROUNDS):
                    broker = cluster.brokers[0]
                    ours.append(replay(folder, broker.pid, broker.port, frames, load, size))
                    with reference_server(folder / "fetch_server", folder / "file", size) as (pid, port):
                        theirs.append(replay(folder, pid, port, frames, load, size))
                ratio = best(ours).mb_per_cpu_second / best(theirs).mb_per_cpu_second
                for server, reading in (("C", best(theirs)), ("ottla", best(ours))):
                    table.add_row(
                        f"{size // 1024} KB",
                        server,
                        f"{reading.cpu_us_per_request:.1f}",
                        f"{reading.mb_per_cpu_second:.0f}",
                        f"{reading.p50_us:.0f}",
                        f"{reading.p99_us:.0f}",
                        f"{ratio:.2f}" if server == "ottla" else "",
                    )
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())

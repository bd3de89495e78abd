"""CPU per produce request, acks=1, one replica: a broker against a C server that does the least possible.

python -m benchmarks.produce_cpu

Both check the batch's CRC-32C, patch it, append it to a file in the page cache and reply. They run in turn,
three times; the best reading of each counts, since what disturbs a run only adds to it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rich.console import Console
from rich.table import Table

from ottla.protocol.messages.headers import encode_request
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.record import encode_batch

from .clusters import ottla_cluster
from .reference_runs import Load, Reading, build, reference_server, replay

VERSION = 8
ROUNDS = 3
SIZES = {16 * 1024: 8000, 64 * 1024: 4000, 1_000_000: 250}


def produce_frame(topic: str, batch_bytes: int) -> tuple[bytes, int]:
    """A request with one batch of about that size, and where in the frame (without its size) the batch
    begins.
    """
    value = os.urandom(1000)
    batch = encode_batch([(None, value, 0)] * (batch_bytes // 1010))
    partition = PartitionProduceData(index=0, records=batch)
    request = ProduceRequest(
        acks=1, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=[partition])]
    )
    frame = encode_request(request, VERSION, 1, "benchmark")
    return frame, frame.index(batch) - 4


def best(readings: list[Reading]) -> Reading:
    """The reading least disturbed."""
    return min(readings, key=lambda reading: reading.cpu_us_per_request)


def main() -> int:
    """Measure and print one table."""
    table = Table("batch", "server", "CPU us/request", "MB/s", "p50 us", "p99 us", "CPU ratio")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        build(folder)
        with ottla_cluster(folder / "cluster", brokers=1, quorum=1) as cluster:
            admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
            for size, count in SIZES.items():
                topic = f"produce-{size}"
                admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
                frame, batch_offset = produce_frame(topic, size)
                load = Load(count=count)
                ours: list[Reading] = []
                theirs: list[Reading] = []
                for _ in range(ROUNDS):
                    broker = cluster.brokers[0]
                    ours.append(replay(folder, broker.pid, broker.port, frame, load, size))
                    program = folder / "produce_server"
                    with reference_server(program, folder / "appended", batch_offset) as (pid, port):
                        theirs.append(replay(folder, pid, port, frame, load, size))
                ratio = best(ours).cpu_us_per_request / best(theirs).cpu_us_per_request
                for server, reading in (("C", best(theirs)), ("ottla", best(ours))):
                    table.add_row(
                        f"{size // 1000} KB",
                        server,
                        f"{reading.cpu_us_per_request:.1f}",
                        f"{reading.mb_per_second:.0f}",
                        f"{reading.p50_us:.0f}",
                        f"{reading.p99_us:.0f}",
                        f"{ratio:.2f}" if server == "ottla" else "",
                    )
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())

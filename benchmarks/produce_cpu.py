"""CPU per produce request, acks=1, one replica: a broker compared with a minimal C server.

    python -m benchmarks.produce_cpu [--rounds N] [--record FILE]

Both check the batch's CRC-32C, patch it, append it to a file in the page cache and reply. The runs are made in pairs.
The table has medians over the rounds, and medians of the ratio within each pair.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ottla.protocol.messages.headers import encode_request
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.records.record import encode_batch

from .clusters import Cluster, ottla_cluster
from .reference_runs import Load, Pair, arguments, build, reference_server, replay, report

VERSION = 8
RECORD_BYTES = 1010
SIZES = {1010: 4000, 16 * 1024: 2000, 64 * 1024: 700, 1_000_000: 40}


def produce_frame(topic: str, batch_bytes: int) -> tuple[bytes, int]:
    """Make a request with one batch of about this size; return it with the batch's position in the frame (without its
    size).
    """
    value = os.urandom(1000)
    batch = encode_batch([(None, value, 0)] * (batch_bytes // RECORD_BYTES))
    partition = PartitionProduceData(index=0, records=batch)
    request = ProduceRequest(
        acks=1, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=[partition])]
    )
    frame = encode_request(request, VERSION, 1, "benchmark")
    return frame, frame.index(batch) - 4


def measure(folder: Path, cluster: Cluster, admin: AdminClient, size: int, number: int) -> Pair:
    """Measure one pair of runs. The written records are deleted, so that every run begins with the same free memory."""
    topic = f"produce-{size}-{number}"
    frame, batch_offset = produce_frame(topic, size)
    load = Load(count=SIZES[size])
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    broker = cluster.brokers[0]
    ours = replay(folder, broker.pid, broker.port, frame, load, size, writes=True)
    admin.delete_topics([topic])[topic].result(30)
    appended = folder / "appended"
    with reference_server(folder / "produce_server", appended, batch_offset) as (pid, port):
        theirs = replay(folder, pid, port, frame, load, size, writes=True)
    appended.unlink()
    return Pair(theirs, ours)


def main() -> int:
    """Measure and print one table."""
    args = arguments(__doc__)
    pairs: dict[int, list[Pair]] = {size: [] for size in SIZES}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        build(folder)
        with ottla_cluster(folder / "cluster", brokers=1, quorum=1) as cluster:
            admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
            for number in range(args.rounds):
                for size in SIZES:
                    pairs[size].append(measure(folder, cluster, admin, size, number))
    report("produce", pairs, args.record)
    return 0


if __name__ == "__main__":
    sys.exit(main())

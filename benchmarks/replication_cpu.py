"""CPU seconds of the brokers per GB produced with acks=all to one partition with three replicas.

    python -m benchmarks.replication_cpu [--rounds N] [--record FILE]

Records of 1 KB in batches of 256 KB, four connections with two requests in flight each, all in the page cache. Each GB
is received and written three times, and read and sent twice.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rich.console import Console
from rich.table import Table

from ottla.protocol.messages.headers import encode_request
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.records.record import encode_batch

from .clusters import Cluster, Node, ottla_cluster
from .reference_runs import arguments, build, cpu_seconds, machine, touch_free_pages

VERSION = 8
BATCH_RECORDS = 256
CONNECTIONS, DEPTH, COUNT = 4, 2, 150
REPLICAS = 3


def leader_of(cluster: Cluster, admin: AdminClient, topic: str) -> Node:
    """Return the broker that leads the topic's single partition, once all replicas are in sync."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        partition = admin.list_topics(topic, timeout=10).topics[topic].partitions.get(0)
        if partition is not None and len(partition.isrs) == REPLICAS:
            return cluster.broker(partition.leader)
        time.sleep(0.05)
    raise RuntimeError(f"the replicas of {topic} are not in sync after 30 s")


def run(folder: Path, cluster: Cluster, admin: AdminClient, number: int) -> tuple[float, float, float]:
    """Return CPU seconds per GB of the leader, of both followers together, and MB/s."""
    topic = f"replicated-{number}"
    admin.create_topics([NewTopic(topic, 1, REPLICAS)])[topic].result(30)
    leader = leader_of(cluster, admin, topic)
    batch = encode_batch([(None, os.urandom(1000), 0)] * BATCH_RECORDS)
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data])
    (folder / "frames").write_bytes(encode_request(request, VERSION, 1, "benchmark"))

    def press(count: int) -> float:
        numbers = map(str, (leader.port, CONNECTIONS, DEPTH, count))
        command = [str(folder / "replay"), *numbers, str(folder / "frames")]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return float(json.loads(told)["seconds"])

    press(COUNT // 4)
    size = CONNECTIONS * COUNT * len(batch)
    touch_free_pages(folder, REPLICAS * size)
    before = {node.id: cpu_seconds(node.pid) for node in cluster.brokers}
    seconds = press(COUNT)
    spent = {node.id: cpu_seconds(node.pid) - before[node.id] for node in cluster.brokers}
    admin.delete_topics([topic])[topic].result(30)
    leading = spent.pop(leader.id)
    return leading / size * 1e9, sum(spent.values()) / size * 1e9, size / 1e6 / seconds


def main() -> int:
    """Measure and print one table."""
    args = arguments(__doc__)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        build(folder)
        with ottla_cluster(folder / "cluster", brokers=REPLICAS, quorum=1) as cluster:
            admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
            runs = [run(folder, cluster, admin, number) for number in range(args.rounds)]
    columns = list(zip(*runs, strict=True))
    totals = [leading + following for leading, following, _ in runs]
    rows = {
        "leader, CPU s/GB": columns[0],
        "both followers, CPU s/GB": columns[1],
        "all brokers, CPU s/GB": totals,
        "MB/s": columns[2],
    }
    table = Table("replication factor 3, acks=all", "median", "least", "most")
    for label, values in rows.items():
        table.add_row(label, f"{statistics.median(values):.2f}", f"{min(values):.2f}", f"{max(values):.2f}")
    Console().print(table)
    if args.record is not None:
        results = {label: round(statistics.median(values), 2) for label, values in rows.items()}
        line = {"what": "replication", "at": time.strftime("%F %T"), "machine": machine(), "results": results}
        with args.record.open("a") as out:
            out.write(json.dumps(line) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

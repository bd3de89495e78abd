"""Apache Kafka 2.8 with ZooKeeper, from Maven Central: the last release line that knows topic ids in Metadata alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.clusters import Cluster, Node
from benchmarks.kafka import HOST, free_ports, wait_registered
from tests.programs.jvm import Jars

VERSION = "2.8.2"
JARS = Jars(f"kafka-{VERSION}", (f"org.apache.kafka:kafka_2.13:{VERSION}", "org.slf4j:slf4j-nop:1.7.30"))
_ZOOKEEPER = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
SESSION_MS = 2000
"""Session timeout in milliseconds: ZooKeeper considers a killed broker alive for this time, and refuses it until then.
Its start takes longer."""


@contextmanager
def old_kafka_cluster(folder: Path) -> Iterator[Cluster]:
    """Run one broker and its ZooKeeper, which stands in for the quorum."""
    folder.mkdir(parents=True, exist_ok=True)
    zookeeper_port, port = free_ports(2)
    zookeeper = _written(
        folder / "zookeeper.properties",
        {
            "dataDir": str(folder / "zookeeper"),
            "clientPort": str(zookeeper_port),
            "clientPortAddress": HOST,
            "admin.enableServer": "false",
            "tickTime": "500",
        },
    )
    broker = _written(
        folder / "broker.properties",
        {
            "broker.id": "1",
            "zookeeper.connect": f"{HOST}:{zookeeper_port}",
            "zookeeper.session.timeout.ms": str(SESSION_MS),
            "listeners": f"PLAINTEXT://{HOST}:{port}",
            "log.dirs": str(folder / "data"),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "4",
            "group.initial.rebalance.delay.ms": "0",
        },
    )
    cluster = Cluster(f"Apache Kafka {VERSION}", f"{HOST}:{port}", [], [])
    environment = dict(os.environ)
    try:
        for nodes, place, main_class, properties in (
            (cluster.quorum, zookeeper_port, _ZOOKEEPER, zookeeper),
            (cluster.brokers, port, "kafka.Kafka", broker),
        ):
            argv = JARS.run_class(main_class, str(properties))
            nodes.append(Node(1, place, 0, argv, str(folder), environment))
            cluster.restart(nodes[0])
        wait_registered(cluster)
        yield cluster
    finally:
        cluster.stop()


def _written(file: Path, properties: dict[str, str]) -> Path:
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    return file

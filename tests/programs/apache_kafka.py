"""Apache Kafka in place of Ottla for programs' tests: a failure with Kafka, too, is no fault of Ottla."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from benchmarks.clusters import Node
from benchmarks.kafka import kafka_cluster
from ottla.testing.processes import executed
from tests.cluster import RunningCluster


@contextmanager
def running_apache_kafka(directory: Path, settings: Mapping[str, str]) -> Iterator[RunningCluster]:
    """Run three brokers of Apache Kafka and a quorum node, with their data in `directory`, until the block ends."""
    few = {"transaction.state.log.num.partitions": "4"}
    with kafka_cluster(directory, quorum=1, settings=few | dict(settings)) as started:
        description = {
            "bootstrap": started.bootstrap,
            "brokers": [_entry(node, directory) for node in started.brokers],
            "quorum": [_entry(node, directory) for node in started.quorum],
        }
        cluster = RunningCluster(directory, None, description, start_node=executed)
        try:
            yield cluster
        finally:
            for node in cluster.brokers:  # their starter does not know nodes that a test has restarted
                node.kill9()


def _entry(node: Node, directory: Path) -> dict[str, object]:
    """Return the node's entry in the form of cluster.json."""
    return asdict(node) | {"log": str(directory / f"node-{node.id}.log")}

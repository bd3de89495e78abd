"""A writer of numbered records, and a query that follows it, for clusters that are lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from types import SimpleNamespace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from ottla.protocol.errors import KafkaError
from ottla.sync import Producer
from tests.cluster import RunningCluster
from tests.spark_integration.topics import values

READ = "readings"
PARTITIONS = 2
WAIT_S = 150.0


@dataclass
class Writer:
    """Writes transactions over both partitions, each of them numbered, until its cluster is gone."""

    bootstrap: str
    name: str
    numbers: Iterator[int] = field(default_factory=count)
    committed: int = 0
    stopped: threading.Event = field(default_factory=threading.Event)

    def write(self) -> None:
        try:
            with Producer(
                bootstrap_servers=self.bootstrap,
                transactional_id=self.name,
                request_timeout_ms=2000,
                delivery_timeout_ms=5000,
                max_block_ms=5000,
            ) as producer:
                while not self.stopped.wait(0.02):
                    with producer.transaction():
                        for number, partition in zip(self.numbers, range(PARTITIONS), strict=False):
                            producer.send(READ, b"%s %d" % (self.name.encode(), number), partition=partition)
                    self.committed += PARTITIONS
        except (KafkaError, OSError):
            assert not self.stopped.is_set()

    @contextmanager
    def running(self, *, until_lost: bool = False) -> Iterator[None]:
        """Write in a thread until the block ends; with `until_lost` the block kills the cluster."""
        thread = threading.Thread(target=self.write)
        thread.start()
        is_lost = False
        try:
            yield
            is_lost = until_lost
        finally:
            if not is_lost:
                self.stopped.set()
            thread.join(WAIT_S)
        assert not thread.is_alive()


def last_batch(query: StreamingQuery) -> int:
    """Return the number of the newest completed batch; -1 if there is none."""
    progress = query.lastProgress
    return -1 if progress is None else progress["batchId"]


def found(cluster: RunningCluster, topic: str) -> list[bytes]:
    """Return the committed values of a topic, sorted."""
    return values(SimpleNamespace(bootstrap_servers=cluster.bootstrap), topic)  # type: ignore[arg-type]


def reading(spark: SparkSession, bootstrap: str) -> DataFrame:
    """Return a stream of the numbered records from the first on."""
    return (
        spark.readStream.format("ottla")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("kafka.request.timeout.ms", 5000)
        .option("subscribe", READ)
        .option("startingOffsets", "earliest")
        .load()
    )

"""Topics filled and read, for tests with a cluster and a Spark session."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ottla import NewTopic
from ottla.sync import Admin, Producer
from ottla.testing import LocalCluster

SPARK_TIMEOUT_S = 90


class Topics:
    """Topics of a cluster, and queries over these topics."""

    def __init__(self, spark: Any, cluster: LocalCluster) -> None:
        self.spark = spark
        self.address = cluster.bootstrap_servers
        self.admin = Admin(bootstrap_servers=self.address)
        self.admin.start()

    def stop(self) -> None:
        self.admin.stop()

    def create(self, name: str, partitions: int = 1, **configs: str) -> str:
        """Create a topic without retention, since tests' records have artificial times."""
        settings = {"retention.ms": "-1", **{key.replace("_", "."): value for key, value in configs.items()}}
        self.admin.create_topics([NewTopic(name, num_partitions=partitions, configs=settings)])
        return name

    def producer(self, **options: Any) -> Producer:
        return Producer(bootstrap_servers=self.address, **options)

    def write(self, topic: str, values: Iterable[object], partition: int | None = None, **more: Any) -> None:
        with self.producer() as producer:
            for value in values:
                producer.send(topic, str(value).encode(), partition=partition, **more)

    def batch(self, **options: object) -> Any:
        return self._with_options(self.spark.read, options).load()

    def stream(self, **options: object) -> Any:
        return self._with_options(self.spark.readStream, options).load()

    def _with_options(self, reader: Any, options: dict[str, object]) -> Any:
        reader = reader.format("ottla").option("kafka.bootstrap.servers", self.address)
        for key, value in options.items():
            reader = reader.option(key.replace("__", "."), value)
        return reader


def values(frame: Any) -> list[str]:
    """Return the values, sorted, as text."""
    return sorted(row.value.decode() for row in frame.select("value").collect())


class Run:
    """A streaming query that reads the available records; the values of each non-empty micro-batch."""

    def __init__(self, frame: Any, checkpoint: Path) -> None:
        self.batches: list[list[str]] = []
        query = (
            frame.writeStream.foreachBatch(self._take)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(SPARK_TIMEOUT_S)
            if (failure := query.exception()) is not None:
                raise failure
        finally:
            query.stop()
        self.progress = query.recentProgress

    def _take(self, frame: Any, batch_id: int) -> None:
        found = values(frame)
        if found:
            self.batches.append(found)

    @property
    def values(self) -> list[str]:
        return sorted(value for batch in self.batches for value in batch)

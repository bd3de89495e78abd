"""Streams of known lines, and queries that write them."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from ottla.testing.local_cluster import LocalCluster

LARGE = 4000
"""Number of characters of a long line: Spark passes rows on once it has 64 KiB."""


def lines(spark: SparkSession, folder: Path, batches: int = 3) -> DataFrame:
    """Return a stream with a batch for each file, of a hundred rows."""
    (folder / "in").mkdir(exist_ok=True)
    for number in range(batches):
        text = "".join(f"{number}-{row}{'.' * LARGE}\n" for row in range(100))
        (folder / "in" / f"{number}.txt").write_text(text)
    return spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder / "in"))


def expected(batches: int = 3) -> list[bytes]:
    return sorted(b"%d-%d" % (number, row) + b"." * LARGE for number in range(batches) for row in range(100))


def start(
    frame: DataFrame, cluster: LocalCluster, topic: str, folder: Path, **options: str
) -> StreamingQuery:
    """Write the available rows, by two tasks."""
    return write_stream(frame.repartition(2), cluster.bootstrap_servers, topic, folder, **options)


def write_stream(frame: DataFrame, servers: str, topic: str, folder: Path, **options: str) -> StreamingQuery:
    """Write the available rows; `folder` gets the checkpoint."""
    return (
        frame.writeStream.format("ottla")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", topic)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .options(**options)
        .trigger(availableNow=True)
        .start()
    )

"""`df.writeStream.format("ottla")`: a transaction for each micro-batch, once, whatever dies and is played again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from ottla.sync import Admin
from ottla.testing.local_cluster import LocalCluster
from tests.spark_integration.mishaps import doomed_driver, first_attempt_fails_late, forget_last_commit
from tests.spark_integration.topics import values

LARGE = 4000
"""Characters: Spark hands rows on once it has 64 KiB."""


def lines(spark: SparkSession, folder: Path, batches: int = 3) -> DataFrame:
    """A stream with a batch for each file, of a hundred rows."""
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
    return (
        frame.repartition(2)
        .writeStream.format("ottla")
        .option("kafka.bootstrap.servers", cluster.bootstrap_servers)
        .option("topic", topic)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .options(**options)
        .trigger(availableNow=True)
        .start()
    )


def test_batches_count_once_though_they_are_played_again(
    spark: SparkSession, spark_cluster: LocalCluster, tmp_path: Path
) -> None:
    """Spark forgets that the last batch was done, as when the driver dies right after the commit."""
    spark_cluster.create_topic("replayed", 2)
    query = start(lines(spark, tmp_path), spark_cluster, "replayed", tmp_path)
    query.awaitTermination()
    assert values(spark_cluster, "replayed") == expected()
    for replay in range(2):
        forget_last_commit(tmp_path / "checkpoint")
        again = start(lines(spark, tmp_path, 3 + replay), spark_cluster, "replayed", tmp_path)
        again.awaitTermination()
        assert values(spark_cluster, "replayed") == expected(3 + replay)
    with Admin(bootstrap_servers=spark_cluster.bootstrap_servers) as admin:
        described = admin.describe_transactions([f"spark-{query.id}"])[f"spark-{query.id}"]
        assert getattr(described, "app_version", None) == 3


def test_a_batch_whose_tasks_fail_counts_once(
    spark: SparkSession, spark_cluster: LocalCluster, tmp_path: Path
) -> None:
    """Each task's first attempt dies after it has written; in the first run one fails for good."""
    spark_cluster.create_topic("retried", 2)
    mark = tmp_path / "failed for good"

    def fails_late(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from first_attempt_fails_late(batches)
        context = TaskContext.get()
        assert context is not None
        if not mark.exists() and context.partitionId() == 1:
            raise RuntimeError("this one fails for good")

    def run() -> None:
        frame = lines(spark, tmp_path, 2).repartition(2).mapInArrow(fails_late, "value string")
        query = (
            frame.writeStream.format("ottla")
            .option("kafka.bootstrap.servers", spark_cluster.bootstrap_servers)
            .option("topic", "retried")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    with pytest.raises(PySparkException, match="this one fails for good"):
        run()
    assert values(spark_cluster, "retried") == []
    mark.touch()
    run()
    assert values(spark_cluster, "retried") == expected(2)


DRIVER = """
import sys, time
from pathlib import Path
from pyspark import TaskContext
from tests.spark_integration.session import new_session

servers, folder = sys.argv[1], Path(sys.argv[2])

def hangs(batches):
    yield from batches
    if TaskContext.get().partitionId() == 1:
        (folder / "hangs").touch()
        time.sleep(600)

lines = new_session(folder / "warehouse").readStream.option("maxFilesPerTrigger", 1).text(str(folder / "in"))
query = (
    lines.repartition(2).mapInArrow(hangs, "value string").writeStream.format("ottla")
    .option("kafka.bootstrap.servers", servers).option("topic", "killed")
    .option("checkpointLocation", str(folder / "checkpoint")).start()
)
query.awaitTermination()
"""


def test_a_driver_that_is_killed_in_mid_batch_loses_nothing(
    spark: SparkSession, spark_cluster: LocalCluster, tmp_path: Path
) -> None:
    """One task of the batch is done and the other has written, too, when all processes of the job are killed. The
    next driver finds the transaction open, and goes on in it."""
    spark_cluster.create_topic("killed", 2)
    frame = lines(spark, tmp_path)

    def uncommitted() -> list[bytes]:
        return values(spark_cluster, "killed", committed=False)

    with doomed_driver(DRIVER, tmp_path, spark_cluster.bootstrap_servers, str(tmp_path)) as reaches:
        reaches((tmp_path / "hangs").exists, "one task has written all")
        reaches(lambda: len(uncommitted()) >= 60, "the other one is done")
    assert values(spark_cluster, "killed") == []
    start(frame, spark_cluster, "killed", tmp_path).awaitTermination()
    assert values(spark_cluster, "killed") == expected()


def test_two_queries_under_one_id_are_found_out(
    spark: SparkSession, spark_cluster: LocalCluster, tmp_path: Path
) -> None:
    """The second would be told that its batches were committed."""
    spark_cluster.create_topic("shared", 1)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    frame = lines(spark, tmp_path)
    start(frame, spark_cluster, "shared", tmp_path / "one", transactionalId="both").awaitTermination()
    second = start(frame, spark_cluster, "shared", tmp_path / "two", transactionalId="both")
    with pytest.raises(PySparkException, match="another query writes under this id"):
        second.awaitTermination()


def test_complete_mode_is_refused(spark: SparkSession, spark_cluster: LocalCluster, tmp_path: Path) -> None:
    frame = lines(spark, tmp_path).groupBy("value").count().selectExpr("value")
    query = (
        frame.writeStream.format("ottla")
        .outputMode("complete")
        .option("kafka.bootstrap.servers", spark_cluster.bootstrap_servers)
        .option("topic", "t")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    with pytest.raises(PySparkException, match="output mode complete would replace what is there"):
        query.awaitTermination()

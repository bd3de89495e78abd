"""`df.writeStream.format("ottla")`: a transaction for each micro-batch, once, despite failures and replays."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ottla.sync import Admin
from ottla.testing.local_cluster import LocalCluster
from tests.spark_integration.mishaps import first_attempt_fails_late, forget_last_commit
from tests.spark_integration.sink.streams import expected, lines, start
from tests.spark_integration.topics import values


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


def test_two_queries_under_one_id_are_found_out(
    spark: SparkSession, spark_cluster: LocalCluster, tmp_path: Path
) -> None:
    """The second query has committed nothing yet, so it checks. The remedy in its error works."""
    spark_cluster.create_topic("shared", 1)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    frame = lines(spark, tmp_path, 1)
    first = start(frame, spark_cluster, "shared", tmp_path / "one", transactionalId="both")
    first.awaitTermination()
    second = start(frame, spark_cluster, "shared", tmp_path / "two", transactionalId="both")
    with pytest.raises(PySparkException) as raised:
        second.awaitTermination()
    assert f"'transactionalId' 'both' is query {first.id}'s, which has committed up to batch 0" in str(
        raised.value
    )
    assert f"`ottla txn delete both-{first.id}`" in str(raised.value)
    assert values(spark_cluster, "shared") == expected(1)
    with Admin(bootstrap_servers=spark_cluster.bootstrap_servers) as admin:
        admin.delete_transactional_id(f"both-{first.id}")
    start(frame, spark_cluster, "shared", tmp_path / "two", transactionalId="both").awaitTermination()
    assert values(spark_cluster, "shared") == sorted(expected(1) * 2)


def test_a_checkpoint_that_was_set_back_is_found_out(
    spark: SparkSession, spark_cluster: LocalCluster, tmp_path: Path
) -> None:
    """Batches with other rows would otherwise be taken for done."""
    spark_cluster.create_topic("back", 1)
    start(lines(spark, tmp_path, 1), spark_cluster, "back", tmp_path).awaitTermination()
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "kept")
    start(lines(spark, tmp_path, 3), spark_cluster, "back", tmp_path).awaitTermination()
    shutil.rmtree(tmp_path / "checkpoint")
    shutil.move(tmp_path / "kept", tmp_path / "checkpoint")
    again = start(lines(spark, tmp_path, 3), spark_cluster, "back", tmp_path)
    with pytest.raises(PySparkException, match="its checkpoint was set back, or another job writes"):
        again.awaitTermination()
    assert values(spark_cluster, "back") == expected()


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

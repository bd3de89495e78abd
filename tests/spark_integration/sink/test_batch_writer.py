"""`df.write.format("ottla")` and `foreachBatch(ottla_sink(...))`: all rows or none, and once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

from ottla.spark_integration import ottla_sink
from ottla.sync import Admin
from ottla.testing.local_cluster import LocalCluster
from tests.spark_integration.mishaps import first_attempt_fails_late
from tests.spark_integration.topics import records, values

SCHEMA = "key string, value string"
LARGE = 4000
"""Characters: Spark hands rows on once it has 64 KiB."""


def writer(frame: DataFrame, cluster: LocalCluster, **options: str) -> DataFrameWriter:
    servers = cluster.bootstrap_servers
    return (
        frame.write.format("ottla")
        .mode("append")
        .option("kafka.bootstrap.servers", servers)
        .options(**options)
    )


def test_every_column_arrives(spark: SparkSession, spark_cluster: LocalCluster) -> None:
    spark_cluster.create_topic("columns-a", 3)
    spark_cluster.create_topic("columns-b", 3)
    rows = [
        ("columns-a", 2, bytearray(b"k"), bytearray(b"v"), [("h", bytearray(b"1")), ("h", None)], "ignored"),
        ("columns-b", 0, None, bytearray(b"only a value"), None, "ignored"),
        ("columns-a", None, bytearray(b"k"), None, [], "ignored"),
    ]
    schema = (
        "topic string, partition int, key binary, value binary, "
        "headers array<struct<key:string,value:binary>>, other string"
    )
    writer(spark.createDataFrame(rows, schema), spark_cluster).save()
    first = next(record for record in records(spark_cluster, "columns-a") if record.value is not None)
    assert (first.partition, first.key, first.value) == (2, b"k", b"v")
    assert tuple(first.headers) == (("h", b"1"), ("h", None))
    (tombstone,) = (record for record in records(spark_cluster, "columns-a") if record.value is None)
    assert tombstone.key == b"k"
    (alone,) = records(spark_cluster, "columns-b")
    assert (alone.partition, alone.key, alone.value, tuple(alone.headers)) == (0, None, b"only a value", ())


def test_a_job_with_a_version_counts_once(spark: SparkSession, spark_cluster: LocalCluster) -> None:
    spark_cluster.create_topic("nightly", 2)
    for version, text in ((0, "a"), (0, "again"), (1, "b"), (1, "again")):
        frame = spark.createDataFrame([(None, f"{text}{n}") for n in range(10)], SCHEMA).repartition(3)
        writer(
            frame, spark_cluster, topic="nightly", transactionalId="nightly", appVersion=str(version)
        ).save()
    assert values(spark_cluster, "nightly") == sorted(
        b"%c%d" % (text, n) for text in b"ab" for n in range(10)
    )
    with pytest.raises(PySparkException, match=r"has committed up to 1: .* or another job writes"):
        writer(frame, spark_cluster, topic="nightly", transactionalId="nightly", appVersion="0").save()


def test_attempts_that_failed_do_not_count(
    spark: SparkSession, spark_cluster: LocalCluster, tmp_path: Path
) -> None:
    """The first attempt of each task writes everything, and dies."""
    spark_cluster.create_topic("attempts", 2)

    rows = [f"{n}{'.' * LARGE}" for n in range(100)]
    frame = spark.createDataFrame([(None, row) for row in rows], SCHEMA).repartition(2)
    writer(frame.mapInArrow(first_attempt_fails_late, SCHEMA), spark_cluster, topic="attempts").save()
    assert values(spark_cluster, "attempts") == sorted(row.encode() for row in rows)
    assert len(values(spark_cluster, "attempts", committed=False)) > 100, "failed attempts have written, too"


def test_a_job_that_fails_leaves_nothing(spark: SparkSession, spark_cluster: LocalCluster) -> None:
    spark_cluster.create_topic("failed", 2)
    frame = spark.createDataFrame([("failed", f"{n}") for n in range(50)], "topic string, value string")
    broken = frame.union(spark.createDataFrame([(None, "x")], "topic string, value string")).coalesce(1)
    with pytest.raises(PySparkException, match="row 0 of a batch has no topic: column 'topic' is null"):
        writer(broken, spark_cluster).save()
    assert values(spark_cluster, "failed") == []
    with Admin(bootstrap_servers=spark_cluster.bootstrap_servers) as admin:
        assert not [
            transaction
            for transaction in admin.list_transactions(states=["Ongoing"])
            if "batch" in transaction.transactional_id
        ]


def test_at_least_once_needs_no_transaction(spark: SparkSession, spark_cluster: LocalCluster) -> None:
    spark_cluster.create_topic("simple", 2)
    frame = spark.createDataFrame([("k", f"{n}") for n in range(20)], SCHEMA)
    writer(frame, spark_cluster, topic="simple", delivery="at-least-once").save()
    assert len({record.partition for record in records(spark_cluster, "simple")}) == 1, (
        "one key, one partition"
    )
    assert values(spark_cluster, "simple") == sorted(b"%d" % n for n in range(20))


@pytest.mark.parametrize(
    ("schema", "options", "message"),
    [
        ("key string", {"topic": "t"}, "there is no column 'value' to be written; there are key string"),
        ("value string", {"topik": "t"}, "has no option 'topik'; did you mean 'topic'?"),
    ],
)
def test_what_cannot_be_written_is_said_by_the_query(
    spark: SparkSession, spark_cluster: LocalCluster, schema: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(PySparkException, match=re.escape(message)):
        writer(spark.createDataFrame([], schema), spark_cluster, **options).save()


def test_a_topic_is_not_overwritten(spark: SparkSession, spark_cluster: LocalCluster) -> None:
    frame = spark.createDataFrame([("v",)], "value string")
    with pytest.raises(PySparkException, match="appends to a topic"):
        writer(frame, spark_cluster, topic="t").mode("overwrite").save()


def test_foreach_batch_writes_each_batch_once(
    spark: SparkSession, spark_cluster: LocalCluster, tmp_path: Path
) -> None:
    """Whatever is done beside it fails, and the batch comes again."""
    spark_cluster.create_topic("foreach", 2)
    (tmp_path / "in").mkdir()
    for number in range(3):
        (tmp_path / "in" / f"{number}.txt").write_text(f"{number}a\n{number}b\n")
    sink = ottla_sink(topic="foreach", bootstrap_servers=spark_cluster.bootstrap_servers)
    seen = list[int]()

    def process(frame: DataFrame, batch_id: int) -> None:
        sink(frame, batch_id)
        seen.append(batch_id)
        if seen.count(batch_id) == 1:
            raise RuntimeError("after the rows were written")

    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(tmp_path / "in"))
    for run in range(4):
        query = (
            lines.writeStream.foreachBatch(process)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        if run < 3:
            with pytest.raises(PySparkException, match="after the rows were written"):
                query.awaitTermination()
        else:
            query.awaitTermination()
    assert seen == [0, 0, 1, 1, 2, 2]
    assert values(spark_cluster, "foreach") == [b"0a", b"0b", b"1a", b"1b", b"2a", b"2b"]

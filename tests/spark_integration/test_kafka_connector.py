"""Spark's own Kafka source and sink, unchanged, against our brokers, and beside ours."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ottla.testing.local_cluster import LocalCluster
from tests.spark_integration.kafka_connector import available
from tests.spark_integration.topics import values

pytestmark = pytest.mark.skipif(not available(), reason="needs mvn to fetch Spark's Kafka connector once")


def test_batches_and_streams_go_through_our_brokers(
    spark: SparkSession, spark_cluster: LocalCluster, tmp_path: Path
) -> None:
    servers = spark_cluster.bootstrap_servers
    for topic in ("connector-in", "connector-out"):
        spark_cluster.create_topic(topic, 2)
    rows = spark.range(500).selectExpr("cast(id as string) key", "cast(id as string) value")
    rows.write.format("kafka").option("kafka.bootstrap.servers", servers).option(
        "topic", "connector-in"
    ).save()
    expected = sorted(b"%d" % number for number in range(500))
    assert values(spark_cluster, "connector-in") == expected
    copied = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", "connector-in")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 300)
        .load()
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", "connector-out")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert copied.awaitTermination(100)
    assert values(spark_cluster, "connector-out") == expected
    of = [
        spark.read.format(name)
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", "connector-out")
        .load()
        .drop("headers")
        for name in ("kafka", "ottla")
    ]
    assert of[0].schema.simpleString() == of[1].schema.simpleString()
    assert sorted(of[0].collect()) == sorted(of[1].collect()), "both formats give the same rows"


def test_what_our_sink_writes_is_what_the_connector_reads_as_committed(
    spark: SparkSession, spark_cluster: LocalCluster
) -> None:
    spark_cluster.create_topic("for-connector", 2)
    rows = spark.range(100).selectExpr("cast(id as string) key", "cast(id as string) value")
    servers = spark_cluster.bootstrap_servers
    rows.write.format("ottla").mode("append").option("kafka.bootstrap.servers", servers).option(
        "topic", "for-connector"
    ).save()
    read = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", "for-connector")
        .load()
    )
    assert sorted(int(row.value) for row in read.select("value").collect()) == list(range(100))

"""Spark with Apache Kafka: the source reads committed records, the sink writes at least once and says so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from benchmarks.clusters import Cluster
from ottla import Admin, NewTopic, Producer
from ottla.spark_integration import register
from tests.spark_integration.session import new_session
from tests.spark_integration.sink.streams import write_stream

STARTS_S = 120
pytestmark = pytest.mark.timeout(STARTS_S)


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    session = new_session(tmp_path_factory.mktemp("warehouse"))
    register(session)
    yield session
    session.stop()


@pytest.fixture
async def topic(kafka: Cluster, group: str) -> str:
    """Return a topic with ten committed records, and five aborted ones among them."""
    async with Admin(bootstrap_servers=kafka.bootstrap) as admin:
        await admin.create_topics([NewTopic(group, 2)])
    async with Producer(bootstrap_servers=kafka.bootstrap, transactional_id=group) as producer:
        for first, commits in ((0, True), (5, False), (10, True)):
            await producer.begin_transaction()
            for number in range(first, first + 5):
                await producer.send(group, b"%d" % number, partition=number % 2)
            await producer.flush()
            await (producer.commit_transaction() if commits else producer.abort_transaction())
    return group


COMMITTED = sorted(str(number) for number in (*range(5), *range(10, 15)))


def read(spark: SparkSession, kafka: Cluster, topic: str, **options: str) -> list[str]:
    frame = spark.read.format("ottla").option("kafka.bootstrap.servers", kafka.bootstrap)
    rows = frame.option("subscribe", topic).options(**options).load().selectExpr("string(value)").collect()
    return sorted(row.value for row in rows)


def written(frame: DataFrame, kafka: Cluster, topic: str, folder: Path, **options: str) -> None:
    write_stream(frame.select("value"), kafka.bootstrap, topic, folder, **options).awaitTermination()


def test_what_is_committed_is_read(spark: SparkSession, kafka: Cluster, topic: str) -> None:
    assert read(spark, kafka, topic) == COMMITTED
    assert len(read(spark, kafka, topic, isolation="read_uncommitted")) == 15
    with pytest.raises(PySparkException, match="isolation=atomic takes a cluster of Ottla"):
        read(spark, kafka, topic, isolation="atomic")


def test_a_stream_goes_on_where_it_was(
    spark: SparkSession, kafka: Cluster, topic: str, tmp_path: Path
) -> None:
    """The stream copies one topic into another: the second run finds no new records."""
    stream = (
        spark.readStream.format("ottla")
        .option("kafka.bootstrap.servers", kafka.bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "6")
        .load()
    )
    target = f"{topic}-copied"
    for _ in range(2):
        written(stream, kafka, target, tmp_path, delivery="at-least-once")
        assert read(spark, kafka, target) == COMMITTED


def test_exactly_once_is_refused(spark: SparkSession, kafka: Cluster, topic: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.txt").write_text("never\n")
    with pytest.raises(PySparkException, match="use option 'delivery', at-least-once"):
        written(spark.readStream.text(str(tmp_path / "in")), kafka, topic, tmp_path)
    assert read(spark, kafka, topic) == COMMITTED

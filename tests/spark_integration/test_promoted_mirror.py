"""An exactly-once query goes on with its checkpoint where its cluster was killed and a mirror promoted at a cut.

The mirror stands still before, so that the checkpoint is ahead of the cut by some batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from ottla import NewTopic
from ottla.protocol.errors import KafkaError
from ottla.spark_integration import take_over
from ottla.sync import Admin
from tests.cluster import RunningCluster, running_cluster, wait_for, wait_until
from tests.spark_integration.numbered_records import (
    PARTITIONS,
    READ,
    WAIT_S,
    Writer,
    found,
    last_batch,
    reading,
)

WRITTEN = "results"
BATCHES = 2
ROWS_IN_ALL = 20


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[tuple[RunningCluster, RunningCluster]]:
    for name in ("west", "east"):
        (tmp_path / name).mkdir()
    with (
        running_cluster(tmp_path / "west", quorum=1, brokers=1) as west,
        running_cluster(tmp_path / "east", quorum=1, brokers=1) as east,
    ):
        yield west, east


def start(spark: SparkSession, bootstrap: str, folder: Path, **trigger: Any) -> StreamingQuery:
    return (
        reading(spark, bootstrap)
        .selectExpr("value")
        .writeStream.format("ottla")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("kafka.request.timeout.ms", 5000)
        .option("topic", WRITTEN)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(**trigger)
        .start()
    )


def cut_of(admin: Admin) -> int:
    (mirror,) = admin.describe_mirrors(["west"])
    assert not mirror.cuts_trouble or mirror.cut is None, mirror.cuts_trouble
    return -1 if mirror.cut is None else mirror.cut.commit_index


@pytest.mark.timeout(600)
def test_a_query_goes_on_with_its_checkpoint_where_its_cluster_was_mirrored(
    spark: SparkSession, clusters: tuple[RunningCluster, RunningCluster], tmp_path: Path
) -> None:
    west, east = clusters
    with Admin(bootstrap_servers=west.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, num_partitions=PARTITIONS) for topic in (READ, WRITTEN)])
    with Admin(bootstrap_servers=east.bootstrap, request_timeout_ms=60_000) as operator:
        operator.create_mirror("west", source=west.bootstrap, topics=f"{READ}|{WRITTEN}")
        with Writer(west.bootstrap, "west").running(until_lost=True):
            query = start(spark, west.bootstrap, tmp_path, processingTime="100 milliseconds")
            wait_until(lambda: last_batch(query) >= BATCHES, "some batches", WAIT_S)
            then = cut_of(operator)
            wait_until(lambda: cut_of(operator) > then + 20, "a cut that has some of the batches", WAIT_S)
            (broker,) = east.brokers
            broker.pause()
            perhaps_mirrored = (
                last_batch(query) + 1
            )  # the batch was in progress, and may have committed before the pause
            wait_until(
                lambda: last_batch(query) >= perhaps_mirrored + BATCHES,
                "batches that are missing in the mirror",
                WAIT_S,
            )
            for node in (*west.brokers, *west.quorum):
                node.kill9()
            broker.resume()
        query.stop()
        promoted = wait_for(lambda: promote(operator), "a promotion", WAIT_S)
    assert promoted.is_promoted_at_cut
    with pytest.raises(StreamingQueryException, match="ottla spark take-over"):
        start(spark, east.bootstrap, tmp_path, availableNow=True).awaitTermination()
    inputs, outputs = found(east, READ), found(east, WRITTEN)
    taken = take_over(str(tmp_path / "checkpoint"), {"bootstrap_servers": east.bootstrap})
    assert len(taken.removed) >= BATCHES, "the checkpoint was not ahead of the cut"
    assert len(inputs) >= len(outputs) >= ROWS_IN_ALL
    again = Writer(east.bootstrap, "east")
    with again.running():
        wait_until(lambda: again.committed >= ROWS_IN_ALL, "records of the promoted cluster's own", WAIT_S)
    start(spark, east.bootstrap, tmp_path, availableNow=True).awaitTermination()
    inputs = found(east, READ)
    assert len(set(inputs)) == len(inputs)
    assert found(east, WRITTEN) == inputs, "each record that is there, once"
    assert {value for value in inputs if value.startswith(b"east")}


def promote(operator: Admin) -> Any:
    try:
        return operator.promote_mirror("west", at_cut=True)
    except KafkaError as error:
        if not error.code.retriable:
            raise
        return None

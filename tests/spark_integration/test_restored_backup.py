"""An exactly-once query goes on with its checkpoint in a cluster that was restored from a backup of its lost cluster.

The checkpoint is ahead of the cut by some batches. New records have the offsets of lost ones before it is taken over.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from ottla import NewTopic
from ottla.spark_integration import ottla_sink, take_over
from ottla.spark_integration.source.position import WrongCheckpoint
from ottla.sync import Admin
from tests.cluster import RunningCluster, running_cluster, wait_until
from tests.integration.restorations import backup_to, restore_from, run
from tests.integration.restorations import store as store
from tests.spark_integration.numbered_records import (
    PARTITIONS,
    READ,
    WAIT_S,
    Writer,
    found,
    last_batch,
    reading,
)

WRITTEN, COPIES = "results", "copies"
BATCHES = 2
ROWS_IN_ALL = 20


@contextmanager
def cluster_in(folder: Path) -> Iterator[RunningCluster]:
    folder.mkdir()
    with running_cluster(folder, quorum=1, brokers=1) as cluster:
        yield cluster


def start(spark: SparkSession, bootstrap: str, checkpoint: Path, **trigger: Any) -> StreamingQuery:
    """Start a query whose function has two sinks."""
    sinks = [
        ottla_sink(bootstrap_servers=bootstrap, topic=topic, kafka_request_timeout_ms="5000")
        for topic in (WRITTEN, COPIES)
    ]

    def write(frame: DataFrame, batch: int) -> None:
        for sink in sinks:
            sink(frame, batch)

    return (
        reading(spark, bootstrap)
        .selectExpr("value")
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(checkpoint))
        .trigger(**trigger)
        .start()
    )


def batches_until_lost(spark: SparkSession, west: RunningCluster, checkpoint: Path, store: Path) -> int:
    """Run a query on a cluster that is backed up twice, and killed some batches later. Return the last batch."""
    with Admin(bootstrap_servers=west.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, num_partitions=PARTITIONS) for topic in (READ, WRITTEN, COPIES)])
    query = start(spark, west.bootstrap, checkpoint, processingTime="100 milliseconds")
    with Writer(west.bootstrap, "west").running(until_lost=True):
        for _ in range(2):
            since = last_batch(query)
            wait_until(lambda: last_batch(query) >= since + BATCHES, "some batches", WAIT_S)  # noqa: B023
            run(*backup_to(store, west, "--groups", ""))
        since = last_batch(query) + 1  # The batch in progress may be in the backup.
        wait_until(lambda: last_batch(query) >= since + BATCHES, "batches after the cut", WAIT_S)
        for node in (*west.brokers, *west.quorum):
            node.kill9()
    last = last_batch(query)
    query.stop()
    return last


@pytest.mark.timeout(600)
def test_a_query_goes_on_with_its_checkpoint_after_its_cluster_was_restored(
    spark: SparkSession, tmp_path: Path, store: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    with cluster_in(tmp_path / "west") as west:
        last = batches_until_lost(spark, west, checkpoint, store)
    with cluster_in(tmp_path / "east") as east:
        run(*restore_from(store, east))
        at_cut = found(east, READ)
        assert len(at_cut) >= len(found(east, WRITTEN)) >= ROWS_IN_ALL
        writer = Writer(east.bootstrap, "east")
        with writer.running():
            wait_until(lambda: writer.committed >= len(at_cut) + ROWS_IN_ALL, "new records", WAIT_S)
        with pytest.raises(StreamingQueryException, match="restored from a backup, `ottla spark take-over"):
            start(spark, east.bootstrap, checkpoint, availableNow=True).awaitTermination()
        options = {"bootstrap_servers": east.bootstrap}
        with pytest.raises(WrongCheckpoint, match=f"has read {READ}-0 up to offset"):
            take_over(str(checkpoint), options, batch=last)
        taken = take_over(str(checkpoint), options)
        assert len(taken.removed) >= BATCHES, "the checkpoint was not ahead of the cut"
        assert taken.replayed
        start(spark, east.bootstrap, checkpoint, availableNow=True).awaitTermination()
        inputs = found(east, READ)
        assert len(set(inputs)) == len(inputs) == len(at_cut) + writer.committed
        assert found(east, WRITTEN) == inputs, "each record that is there, once"
        assert found(east, COPIES) == inputs, "the second sink lacks nothing"

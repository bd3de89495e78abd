"""A query from topic to topic on three brokers, which die one after the other, and the quorum's leader with them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from ottla.spark_integration import register
from ottla.sync import Producer
from tests.cluster import RunningCluster, running_cluster, wait_until
from tests.compat.reading import read_to_the_end
from tests.faults.faults import Faults
from tests.faults.workload import make_topic
from tests.integration.history import SMALL_CLUSTER
from tests.spark_integration.sink.streams import write_stream

ROWS, PER_TRANSACTION, PER_BATCH = 6000, 100, 250
BATCH_S = 60.0


@pytest.fixture
def three_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    settings = SMALL_CLUSTER | {"broker.session.timeout.ms": "2000"}
    with running_cluster(tmp_path_factory.mktemp("cluster"), settings=settings) as cluster:
        yield cluster


@pytest.mark.faults
@pytest.mark.timeout(400)
def test_a_query_goes_on_while_brokers_die(
    spark: SparkSession, three_brokers: RunningCluster, tmp_path: Path
) -> None:
    """No micro-batch fails, is lost or comes twice, and no transaction of the source is torn."""
    servers = three_brokers.bootstrap
    for topic in ("from", "to"):
        make_topic(servers, topic)
    with Producer(bootstrap_servers=servers, transactional_id="source") as producer:
        for first in range(0, ROWS, PER_TRANSACTION):
            with producer.transaction():
                for number in range(first, first + PER_TRANSACTION):
                    producer.send("from", b"%d" % number, partition=number % 3)
    register(spark)
    stream = (
        spark.readStream.format("ottla")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", "from")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(PER_BATCH))
        .load()
        .selectExpr("key", "value")
    )
    query = write_stream(stream, servers, "to", tmp_path)
    with Faults(three_brokers, ("from", "to"), groups=False) as faults:
        wait_for_batches(query, 2)
        for topic in ("from", "to"):
            leader = faults.leader(topic, 0)
            faults.kill(leader, faults.quorum_leader())
            faults.wait_led_by_another(topic, 0, leader)
            wait_for_batches(query, 2)
            faults.heal()
        assert query.isActive, "nodes died while it ran"
        assert query.awaitTermination(int(BATCH_S)), query.status
        found = asyncio.run(read_to_the_end(servers, "to", isolation="read_committed"))
    assert sorted(int(value or b"-1") for value in found) == list(range(ROWS))
    assert all(batch["numInputRows"] % PER_TRANSACTION == 0 for batch in query.recentProgress)


def wait_for_batches(query: StreamingQuery, count: int) -> None:
    """Return once `count` further batches end."""

    def ended() -> int:
        error = query.exception()
        assert error is None, error
        last = query.lastProgress
        return -1 if last is None else int(last["batchId"])

    goal = ended() + count
    wait_until(lambda: ended() >= goal or not query.isActive, f"batch {goal} is done", BATCH_S)

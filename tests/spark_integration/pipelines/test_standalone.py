"""A pipeline on a real Spark cluster, of which an executor and then a worker are killed in the middle of a batch."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from ottla.spark_integration import read_arrow_table
from ottla.testing.local_cluster import LocalCluster
from tests.spark_integration.pipelines.driver import Driver, wait_gone
from tests.spark_integration.pipelines.flights import (
    expected,
    publish,
    publish_end,
    result,
    some_flights,
)
from tests.spark_integration.pipelines.standalone import FOR_ONE_CORE, standalone_cluster
from tests.spark_integration.topics import records

MANY = some_flights(4000, days=40)
EXECUTOR_DIES_IN, WORKER_DIES_IN = 1, 2


@pytest.mark.faults
@pytest.mark.timeout(300)
def test_an_executor_and_a_worker_are_killed_in_mid_batch(
    spark_cluster: LocalCluster,
    topics: tuple[str, str],
    pipeline_file: Callable[[Mapping[str, str]], Path],
    tmp_path: Path,
) -> None:
    servers, (flights, delays) = spark_cluster.bootstrap_servers, topics
    publish(servers, flights, MANY)
    publish_end(servers, flights)
    file = pipeline_file({"source.maxOffsetsPerTrigger": "1100", **FOR_ONE_CORE})
    with standalone_cluster(tmp_path, workers=2) as spark:
        with Driver(file, servers, ["--once", "--master", spark.master]) as driver:
            driver.wait_until(lambda: driver.under_way() == EXECUTOR_DIES_IN, "a batch under way")
            driver.wait_until(lambda: len(spark.executors()) == 2, "an executor on each worker")
            victim, its_worker = spark.executors().popitem()
            spark.kill(victim)
            driver.wait_until(
                lambda: any(
                    worker == its_worker for pid, worker in spark.executors().items() if pid != victim
                ),
                "another executor on its worker",
            )
            driver.wait_until(lambda: (driver.under_way() or 0) >= WORKER_DIES_IN, "a later batch under way")
            spark.kill(spark.workers[0])
            assert driver.wait() == 0, driver.said
            batches = driver.told
        wait_gone(str(file))
    assert sum(batch["rows"] for batch in batches) == len(MANY) + 1
    assert sum(batch["late"] for batch in batches) == 0
    in_topic = result(json.loads(record.value or b"") for record in records(spark_cluster, delays))
    in_table = result(read_arrow_table(str(file.parent / "table")).to_pylist())
    assert in_topic == in_table == expected(MANY)
    wait_gone(str(tmp_path))

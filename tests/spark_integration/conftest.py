"""One Spark session and one cluster for all of these tests, which run on one process, one after the other."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ottla import spark_integration
from ottla.testing.local_cluster import LocalCluster

ROOT = Path(__file__).resolve().parents[2]
TASK_ATTEMPTS = 3
STARTS_S = 120


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("spark"))
            item.add_marker(pytest.mark.timeout(STARTS_S))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Its executors are Python processes like this one."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))
    session = (
        SparkSession.builder.master(f"local[2,{TASK_ATTEMPTS}]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.python.filterPushdown.enabled", "true")
        .config("spark.sql.streaming.noDataMicroBatches.enabled", "false")
        .config(
            "spark.sql.execution.arrow.maxRecordsPerBatch", "10"
        )  # so that much is written before a task fails
        .config("spark.log.level", "OFF")
        .getOrCreate()
    )
    spark_integration.register(session)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def spark_cluster() -> Iterator[LocalCluster]:
    """One broker is enough for what Spark does. Topics are made by tests."""
    with LocalCluster(1, settings={"auto.create.topics.enable": "false"}) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def cluster(spark_cluster: LocalCluster) -> LocalCluster:
    """The same."""
    return spark_cluster

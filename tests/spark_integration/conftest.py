"""One Spark session for all of these tests, and a cluster for each module."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from ottla.testing import LocalCluster


@pytest.fixture(scope="session")
def spark() -> Iterator[object]:
    """A session with format("ottla"), two threads, and nothing that takes time."""
    from pyspark.sql import SparkSession

    from ottla import spark_integration

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("PYSPARK_DRIVER_PYTHON", sys.executable)
        builder = SparkSession.builder.master("local[2]").appName("ottla-tests")
        for key, value in {
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.python.filterPushdown.enabled": "true",
            "spark.sql.session.timeZone": "UTC",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.codegen.wholeStage": "false",  # compiling takes longer than these queries do
        }.items():
            builder = builder.config(key, value)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        spark_integration.register(session)
        yield session
        session.stop()


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """One process: a broker and a quorum of one. Topics are made by tests."""
    with LocalCluster(settings={"auto.create.topics.enable": "false"}) as running:
        yield running

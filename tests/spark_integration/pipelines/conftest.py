"""A session for whole pipelines, and a folder with a pipeline's file."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ottla.testing.local_cluster import LocalCluster
from tests.spark_integration.pipelines.flights import make_topics
from tests.spark_integration.session import QUICK_TO_START

PROPERTIES = {
    "spark.sql.streaming.noDataMicroBatches.enabled": "true",  # what ends windows after the last record
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
}
_numbers = itertools.count()


@pytest.fixture
def streaming(spark: SparkSession) -> Iterator[SparkSession]:
    """Return the session of all these tests, with a pipeline's properties."""
    before = {key: spark.conf.get(key) for key in PROPERTIES}
    for key, value in PROPERTIES.items():
        spark.conf.set(key, value)
    yield spark
    for key, old in before.items():
        if old is not None:
            spark.conf.set(key, old)


@pytest.fixture
def topics(spark_cluster: LocalCluster) -> tuple[str, str]:
    """Return new topics: of flights, and of delays."""
    number = next(_numbers)
    names = (f"flights-{number}", f"delays-{number}")
    make_topics(spark_cluster.bootstrap_servers, *names)
    return names


@pytest.fixture
def pipeline_file(tmp_path: Path, topics: tuple[str, str]) -> Callable[[Mapping[str, str]], Path]:
    """Return a function that writes a pipeline's file, with these keys added or changed."""

    def write(keys: Mapping[str, str]) -> Path:
        source, sink = topics
        chosen = {
            "name": "delays-by-day",
            "source.subscribe": source,
            "source.startingOffsets": "earliest",
            "steps.use": "flight_delays",
            "steps.watermark": "2 days",
            "topic.name": sink,
            "topic.key": "carrier",
            "parquet.path": "table",
            "checkpoint": "checkpoint",
            "master": "local[2]",
            "spark.sql.shuffle.partitions": "2",
            "spark.ui.enabled": "false",
            "spark.driver.defaultJavaOptions": QUICK_TO_START,
            "spark.sql.codegen.wholeStage": "false",
            "spark.python.daemon.module": "tests.spark_integration.loaded_daemon",
        }
        file = tmp_path / "pipeline.yaml"
        file.write_text("".join(f"{key}: {value!r}\n" for key, value in {**chosen, **keys}.items()))
        return file

    return write

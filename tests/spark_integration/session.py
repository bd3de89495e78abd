"""The Spark session of tests, for their own process and for drivers that they start and kill."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from ottla import spark_integration
from tests.spark_integration.kafka_connector import connector_jars

ROOT = Path(__file__).resolve().parents[2]
TASK_ATTEMPTS = 3


def new_session(warehouse: Path) -> SparkSession:
    """Quiet, on loopback, with two cores; every task is tried three times. format("ottla") is known."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    session = (
        SparkSession.builder.master(f"local[2,{TASK_ATTEMPTS}]")
        .config(
            "spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
        )  # it is over soon
        .config("spark.jars", ",".join(map(str, connector_jars())))
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(warehouse))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.python.filterPushdown.enabled", "true")
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.sql.codegen.wholeStage", "false")  # compiling takes longer than these queries do
        .config(
            "spark.sql.execution.arrow.maxRecordsPerBatch", "10"
        )  # so that much is written before a task fails
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    spark_integration.register(session)
    return session

"""The Spark session of tests, for their own process and for drivers that they start and kill."""

from __future__ import annotations

from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from ottla.spark_integration.pipelines.session import open_session
from tests.spark_integration.hadoop_aws import s3a_jars
from tests.spark_integration.kafka_connector import connector_jars

TASK_ATTEMPTS = 3
QUICK_TO_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of a short-lived JVM, for which optimising compilation does not pay."""


def new_session(warehouse: Path) -> SparkSession:
    """Return a session with a pipeline's properties and two cores; every task is tried three times."""
    properties = {
        "spark.driver.extraJavaOptions": QUICK_TO_START,
        "spark.python.daemon.module": "tests.spark_integration.loaded_daemon",
        "spark.jars": ",".join(map(str, [*connector_jars(), *s3a_jars()])),
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(warehouse),
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",  # compiling takes longer than these queries do
        "spark.sql.execution.arrow.maxRecordsPerBatch": "10",  # so that much is written before a task fails
    }
    session = open_session("ottla-tests", f"local[2,{TASK_ATTEMPTS}]", properties)
    session.sparkContext.setLogLevel("OFF")
    return session


def close_connection() -> None:
    """Close the connection of this thread with the JVM; the next call opens another one.

    A call that is cut off by the time limit of its test leaves its answer unread. As long as the traceback keeps the
    connection alive, py4j uses it again, and every later call gets the answer of the call before.
    """
    gateway = SparkContext._gateway
    if gateway is not None and (connection := gateway._gateway_client.get_thread_connection()) is not None:
        connection.close(reset=True)

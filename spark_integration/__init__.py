"""Spark: exactly-once pipelines in and out of a cluster, from PySpark, without a jar.

    from ottla import spark_integration

    spark_integration.register(spark)  # makes format("ottla") known
    flights = spark.readStream.format("ottla").option("kafka.bootstrap.servers", address).option("subscribe", "flights")
    delays.writeStream.format("ottla").option("kafka.bootstrap.servers", address).option("topic", "delays")

`source` reads: every micro-batch ends at a consistent cut, so that a transaction lies in one batch as a whole. `sink`
writes: the tasks of a micro-batch are writers of one transaction, which the driver commits with the batch's number.
`outside` holds what `foreachBatch` needs to be exactly-once: a sink to a cluster, and to databases and files.

One rule: what a batch contains is decided by offsets in Spark's checkpoint, and whether it counts by one decision of
the quorum; so every retry, replay and restart comes to the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Make `format("ottla")` known to a session. Raises ModuleNotFoundError that says how to install PySpark."""
    from .requirements import need_pyspark

    need_pyspark()
    from .data_source import OttlaDataSource

    spark.dataSource.register(OttlaDataSource)

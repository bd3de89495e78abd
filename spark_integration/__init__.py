"""Exactly-once pipelines in and out of a cluster from PySpark, without a jar.

    from ottla import spark_integration

    spark_integration.register(spark)  # makes format("ottla") known
    flights = spark.readStream.format("ottla").option("kafka.bootstrap.servers", address).option("subscribe", "flights")
    delays.writeStream.format("ottla").option("kafka.bootstrap.servers", address).option("topic", "delays")

`source` reads: every micro-batch ends at a consistent cut, so each transaction lies in a single batch as a whole.
`sink` writes: the tasks of a micro-batch write in one transaction, which the driver commits with the batch's number.
`outside` holds the exactly-once functions for `foreachBatch`: sinks to a cluster, to databases and to files.

One rule: the offsets in Spark's checkpoint decide the contents of a batch, and one decision of the quorum decides if
the batch counts. So every retry, replay and restart has the same result.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ..protocol.nearest import nearest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .checkpoints import TakenOver, take_over
    from .foreach_batch import ottla_sink
    from .outside.exactly_once import exactly_once
    from .outside.failures import BatchRefused, OutsideError, QueryReplaced
    from .outside.parquet_reading import parquet_files, read_arrow_table, read_parquet_table
    from .outside.parquet_sink import parquet_sink
    from .outside.sql_progress import SqlProgress
    from .outside.sql_sink import sql_sink

_HOMES = {
    "outside.exactly_once": ("exactly_once",),
    "outside.failures": ("BatchRefused", "OutsideError", "QueryReplaced"),
    "outside.parquet_reading": ("parquet_files", "read_arrow_table", "read_parquet_table"),
    "outside.parquet_sink": ("parquet_sink",),
    "outside.sql_progress": ("SqlProgress",),
    "outside.sql_sink": ("sql_sink",),
    "foreach_batch": ("ottla_sink",),
    "checkpoints": ("TakenOver", "take_over"),
}
"""Names that each module exports; a module is imported when one of its names is first used."""

__all__ = [
    "BatchRefused",
    "OutsideError",
    "QueryReplaced",
    "SqlProgress",
    "TakenOver",
    "exactly_once",
    "ottla_sink",
    "parquet_files",
    "parquet_sink",
    "read_arrow_table",
    "read_parquet_table",
    "register",
    "sql_sink",
    "take_over",
]


def __getattr__(name: str) -> Any:
    """Import the module that exports `name`. Raises AttributeError with the nearest known name."""
    for module, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f".{module}", __name__), name)
    meant = nearest(name, __all__)
    hint = f"; did you mean {meant!r}?" if meant else ""
    raise AttributeError(f"ottla.spark_integration has no {name!r}{hint}", name=name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def register(spark: SparkSession) -> None:
    """Register `format("ottla")` with a session, and let workers on this machine run this Python.

    Raises ModuleNotFoundError with the command that installs PySpark.
    """
    from .requirements import need_pyspark

    need_pyspark()
    from .data_source import OttlaDataSource
    from .workers import choose_python

    choose_python(spark)
    spark.dataSource.register(OttlaDataSource)

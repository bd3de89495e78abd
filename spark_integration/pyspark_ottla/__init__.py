"""The entry point through which Spark finds `format("ottla")`: it searches top-level packages called `pyspark_...`.

Installed as `pyspark_ottla`. Every session that looks for data sources imports it, so it imports no client.
"""

from __future__ import annotations

from ottla.spark_integration.data_source import OttlaDataSource as DefaultSource

__all__ = ["DefaultSource"]

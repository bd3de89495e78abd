"""Where Spark finds `format("ottla")` by itself: it looks into top-level packages called `pyspark_...`.

Installed as `pyspark_ottla`. It is loaded by every session that looks for data sources, and so loads no client.
"""

from __future__ import annotations

from ottla.spark_integration.data_source import OttlaDataSource as DefaultSource

__all__ = ["DefaultSource"]

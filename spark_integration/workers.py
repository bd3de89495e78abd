"""The choice of the Python that a Spark session's workers run.

Spark starts the workers of its Python functions, and so of data sources, with `PYSPARK_PYTHON`, or else with the first
`python3` on the path. If the driver runs in a virtual environment, that is another Python, in which pyarrow and this
package are missing.
"""

from __future__ import annotations

import os
import sys
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


def choose_python(spark: SparkSession) -> None:
    """Let the session's workers run the driver's Python, unless `PYSPARK_PYTHON` is set.

    This applies if the workers run on this machine (a `local` master). Elsewhere the driver cannot know which Python is
    installed: if it runs in a virtual environment, a UserWarning names the variable to set.
    """
    if "PYSPARK_PYTHON" in os.environ:
        return
    context: SparkContext | None = getattr(spark, "sparkContext", None)
    if context is None:  # Spark Connect: the server has chosen the Python of its workers
        return
    if context.master is not None and context.master.startswith("local"):
        context.pythonExec = sys.executable
    elif sys.prefix != sys.base_prefix:
        warnings.warn(
            f"the workers of this session run {context.pythonExec!r}, which needs pyarrow and ottla installed: set "
            "PYSPARK_PYTHON to the Python to run on the executors' machines before the session starts",
            stacklevel=3,
        )

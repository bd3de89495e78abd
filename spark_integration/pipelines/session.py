"""The Spark session of a pipeline, whose processes find Java, Python and this package."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING

from .java import java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHECKOUT = Path(__file__).resolve().parents[2]
"""Folder of this package's sources. It contains a pyproject.toml in a checkout, and none in an installation."""
DEFAULTS: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",  # results do not depend on the machine's time zone
    "spark.log.level": "ERROR",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{Path(__file__).with_name('log4j2.properties')}",
}
ON_THIS_MACHINE: Mapping[str, str] = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}
"""Properties for a local master: no other machine needs to reach the driver."""


def prepare(environ: MutableMapping[str, str]) -> None:
    """Set environment variables so that this process and its children find Java, this Python and this package. Raises
    NoJava.
    """
    if (home := java_home(environ)) is not None:
        environ["JAVA_HOME"] = home
    environ.setdefault("PYSPARK_PYTHON", sys.executable)
    environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if (CHECKOUT / "pyproject.toml").exists():
        paths = [path for path in environ.get("PYTHONPATH", "").split(os.pathsep) if path]
        if str(CHECKOUT) not in paths:
            environ["PYTHONPATH"] = os.pathsep.join([str(CHECKOUT), *paths])


def open_session(name: str, master: str, properties: Mapping[str, str]) -> SparkSession:
    """Start the Spark session of a pipeline with this application name and master. `properties` override the defaults.
    Raises PySpark's errors."""
    from pyspark.sql import SparkSession

    from .. import register

    prepare(os.environ)
    chosen = dict(DEFAULTS)
    if master.startswith("local"):
        chosen |= ON_THIS_MACHINE
    if path := os.environ.get("PYTHONPATH"):
        chosen["spark.executorEnv.PYTHONPATH"] = path
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in (chosen | dict(properties)).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark

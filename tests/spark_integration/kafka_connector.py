"""Spark's own `format("kafka")`, from Maven Central. 4.2.0 is the newest release there, and works with Spark 4.3."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.java import fetched

VERSION = "4.2.0"
CACHE = Path("~/.cache/ottla-tests").expanduser() / f"spark-kafka-{VERSION}"
_COMPLETE = CACHE / "complete"
OF_SPARK = ("hadoop-", "scala-", "slf4j-", "spark-tags", "lz4-", "snappy-", "jsr305")
"""Prefixes of jars that Spark has itself."""
_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>org.ottla.tests</groupId><artifactId>spark-kafka-classpath</artifactId><version>1</version>
<packaging>pom</packaging><dependencies><dependency>
  <groupId>org.apache.spark</groupId><artifactId>spark-sql-kafka-0-10_2.13</artifactId><version>{VERSION}</version>
</dependency></dependencies></project>
"""


def available() -> bool:
    """Return whether the jars are on this machine, or Maven to fetch them once."""
    return _COMPLETE.exists() or shutil.which("mvn") is not None


def connector_jars() -> list[Path]:
    """Return the jars for `spark.jars`; empty if they are not available."""
    if not available():
        return []
    return [
        path
        for path in sorted(fetched(_POM, CACHE, _COMPLETE).glob("*.jar"))
        if not path.name.startswith(OF_SPARK)
    ]

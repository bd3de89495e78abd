"""Hadoop's file system for S3, from Maven Central: the version of Spark's own Hadoop, with the modules that it uses."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.java import fetched

VERSION, SDK_VERSION = "3.5.0", "2.35.5"
CACHE = Path("~/.cache/ottla-tests").expanduser() / f"hadoop-aws-{VERSION}"
_COMPLETE = CACHE / "complete"
_MODULES = ("s3", "s3-transfer-manager", "sts")
_OF_SPARK = ("hadoop-client-", "slf4j-", "commons-logging-")
"""Prefixes of jars that Spark has itself."""
_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>org.ottla.tests</groupId><artifactId>hadoop-aws-classpath</artifactId><version>1</version>
<packaging>pom</packaging><dependencies><dependency>
  <groupId>org.apache.hadoop</groupId><artifactId>hadoop-aws</artifactId><version>{VERSION}</version>
  <exclusions><exclusion>
    <groupId>software.amazon.awssdk</groupId><artifactId>bundle</artifactId>
  </exclusion></exclusions>
</dependency>{
    "".join(
        f'''<dependency>
  <groupId>software.amazon.awssdk</groupId><artifactId>{module}</artifactId><version>{SDK_VERSION}</version>
</dependency>'''
        for module in _MODULES
    )
}</dependencies></project>
"""


def available() -> bool:
    """Return whether the jars are on this machine, or Maven to fetch them once: 19 MB."""
    return _COMPLETE.exists() or shutil.which("mvn") is not None


def s3a_jars() -> list[Path]:
    """Return the jars for `spark.jars`; empty if they are not available."""
    if not available():
        return []
    return [
        path
        for path in sorted(fetched(_POM, CACHE, _COMPLETE).glob("*.jar"))
        if not path.name.startswith(_OF_SPARK)
    ]

"""Stores for tables of files: moto, which speaks S3's protocol, and HDFS with one node."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from pyspark.sql import SparkSession

from tests import java
from tests.client.objects.store_servers import running
from tests.spark_integration import hadoop_aws

START_S = 180.0
HADOOP_VERSION = "3.5.0"
CACHE = Path("~/.cache/ottla-tests").expanduser() / f"hdfs-{HADOOP_VERSION}"
_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>org.ottla.tests</groupId><artifactId>hdfs-classpath</artifactId><version>1</version>
<packaging>pom</packaging><dependencies><dependency>
  <groupId>org.apache.hadoop</groupId><artifactId>hadoop-client-minicluster</artifactId>
  <version>{HADOOP_VERSION}</version>
</dependency></dependencies></project>
"""
_MINI_HDFS = Path(__file__).parent / "java" / "MiniHdfs.java"


@contextmanager
def s3a(spark: SparkSession, folder: Path) -> Iterator[str]:
    """Run moto, make the session use it, and yield the URI of a bucket."""
    pytest.importorskip("moto.server", reason="make venv installs moto")
    if not hadoop_aws.available():
        pytest.skip("needs mvn to fetch hadoop-aws once")
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    with running(folder / "moto.log", command, "Running on", START_S) as address:
        urlopen(Request(f"{address}/bucket", method="PUT"), timeout=30).close()
        settings = {
            "fs.s3a.endpoint": address,
            "fs.s3a.endpoint.region": "us-east-1",
            "fs.s3a.path.style.access": "true",
            "fs.s3a.access.key": "some-key",
            "fs.s3a.secret.key": "some-secret",
            "fs.s3a.attempts.maximum": "2",
        }
        for key, value in settings.items():
            spark.conf.set(key, value)
        try:
            yield "s3a://bucket"
        finally:
            for key in settings:
                spark.conf.unset(key)


@contextmanager
def hdfs(folder: Path) -> Iterator[str]:
    """Run HDFS with one node, and yield its URI."""
    if shutil.which("javac") is None or (not (CACHE / "complete").exists() and shutil.which("mvn") is None):
        pytest.skip("needs javac, and mvn to fetch HDFS once")
    jars = java.fetched(_POM, CACHE, CACHE / "complete")
    command = ["java", "-Xmx512m", *java.QUICK, "-cp", f"{jars}/*", str(_MINI_HDFS), str(folder / "hdfs")]
    with running(folder / "hdfs.log", command, "Running on", START_S) as address:
        yield address

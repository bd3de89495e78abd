"""Kafka's own Java tools (kafka-tools and kafka_2.13 from Maven Central), for tests that ask what Kafka thinks of us.

The jars are resolved once through `mvn` into a cache folder. 4.3.0 is the newest release whose tools are on
Maven Central (4.4.0 names artifacts that are not there). Its tools API is not; the interfaces in it that
DumpLogSegments needs are those of 4.1.0, which is.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from pathlib import Path

import pytest

KAFKA_VERSION = "4.3.0"
TOOLS_API_VERSION = "4.1.0"
CACHE = Path("~/.cache/ottla-tests").expanduser() / f"kafka-tools-{KAFKA_VERSION}"
_COMPLETE = CACHE / f"complete-with-core-and-tools-api-{TOOLS_API_VERSION}"

_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>org.ottla.tests</groupId><artifactId>kafka-tools-classpath</artifactId><version>1</version>
<packaging>pom</packaging><dependencies><dependency>
  <groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{KAFKA_VERSION}</version>
  <exclusions><exclusion>
    <groupId>org.apache.kafka</groupId><artifactId>kafka-tools-api</artifactId>
  </exclusion></exclusions>
</dependency><dependency>
  <groupId>org.apache.kafka</groupId><artifactId>kafka-tools-api</artifactId><version>{TOOLS_API_VERSION}</version>
</dependency><dependency>
  <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{KAFKA_VERSION}</version>
  <exclusions><exclusion>
    <groupId>org.apache.kafka</groupId><artifactId>kafka-tools-api</artifactId>
  </exclusion></exclusions>
</dependency></dependencies></project>
"""

_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"


def available() -> bool:
    """Whether `java` and the jars (or `mvn` to get them) are on this machine."""
    return shutil.which("java") is not None and (_COMPLETE.exists() or shutil.which("mvn") is not None)


needs_java = pytest.mark.skipif(not available(), reason="needs java, and mvn to fetch Kafka's tools once")


def jars() -> Path:
    """The folder of jars, filled on first use; several test processes may ask at once."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _COMPLETE.exists():
            (CACHE / "pom.xml").write_text(_POM)
            command = ["mvn", "-q", "-B", "-ntp", "-f", str(CACHE / "pom.xml"), _PLUGIN]
            command += [f"-DoutputDirectory={CACHE / 'libs'}", "-DincludeScope=runtime"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout[-3000:]
            _COMPLETE.touch()
    return CACHE / "libs"


def command(main_class: str, *arguments: str) -> list[str]:
    """argv that runs one of Kafka's tools, e.g. `org.apache.kafka.tools.VerifiableProducer`."""
    flags = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    return ["java", *flags, "-cp", f"{jars()}/*", main_class, *arguments]


def run(main_class: str, *arguments: str, timeout_s: float = 90) -> str:
    """Run a tool to its end; its standard output. Fails the test on another exit status than 0."""
    done = subprocess.run(
        command(main_class, *arguments), capture_output=True, text=True, timeout=timeout_s, check=False
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
    return done.stdout

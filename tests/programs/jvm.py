"""Programs for the JVM: their jars from Maven Central, our small programs that use them, and their processes."""

from __future__ import annotations

import hashlib
import shutil
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from tests.cluster import wait_until
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
    """What a program needs, as Maven's `group:artifact:version`."""

    name: str
    artifacts: tuple[str, ...]

    @property
    def folder(self) -> Path:
        """The folder of all jars, filled once."""
        digest = hashlib.sha256("\n".join(self.artifacts).encode()).hexdigest()[:12]
        cache = CACHE / f"{self.name}-{digest}"
        return fetched(self._pom(), cache, cache / "complete")

    def _pom(self) -> str:
        tags = ("groupId", "artifactId", "version")
        wanted = "".join(
            f"<dependency>{''.join(f'<{t}>{p}</{t}>' for t, p in zip(tags, one.split(':'), strict=True))}</dependency>"
            for one in self.artifacts
        )
        return (
            '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
            f"<groupId>org.ottla.tests</groupId><artifactId>{self.name}</artifactId><version>1</version>"
            f"<packaging>pom</packaging><dependencies>{wanted}</dependencies></project>"
        )

    def command(self, source: str) -> list[str]:
        """argv that runs a program of the folder java/ beside these jars, compiled once."""
        return [
            "java",
            *_FLAGS,
            "-cp",
            f"{self._compiled(HERE / 'java' / source)}:{self.folder}/*",
            Path(source).stem,
        ]

    def run_class(self, name: str, *arguments: str) -> list[str]:
        """argv that runs a class of these jars."""
        return ["java", *_FLAGS, "-cp", f"{self.folder}/*", name, *arguments]

    def _compiled(self, source: Path) -> Path:
        content = source.read_bytes() + "\n".join(self.artifacts).encode()
        folder = CACHE / f"{source.stem}-{hashlib.sha256(content).hexdigest()[:12]}"
        if not (folder / "complete").exists():
            argv = ["javac", "-cp", f"{self.folder}/*", "-d", str(folder), str(source)]
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            (folder / "complete").touch()
        return folder


class Program:
    """A process whose output goes to a file, until the block ends. It may be killed and started again."""

    def __init__(self, argv: Sequence[str], log: Path) -> None:
        self._argv, self.log = argv, log
        self._process: subprocess.Popen[bytes] | None = None
        self._begun_at = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill9()

    @property
    def said(self) -> str:
        """What it printed since it was started last."""
        with self.log.open("rb") as file:
            file.seek(self._begun_at)
            return file.read().decode(errors="replace")

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Begin, or begin anew."""
        assert not self.alive
        with self.log.open("ab") as file:
            self._begun_at = file.tell()
            self._process = subprocess.Popen(
                self._argv, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
            )

    def kill9(self) -> None:
        """SIGKILL; returns once it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)

    def stop(self, timeout_s: float = 60) -> None:
        """SIGTERM; returns once it has ended in good order."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(timeout_s)

    def wait_until_said(self, text: str, timeout_s: float = 90) -> None:
        """Return once it has printed `text`; fails with the end of what it said if it ends before."""
        wait_until(lambda: text in self.said or not self.alive, f"{text!r} in {self.log}", timeout_s)
        assert text in self.said, self.said[-3000:]

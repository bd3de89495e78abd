"""Flink: its jars, and a job that copies a topic exactly once, that may be killed and restored from a checkpoint.

Maven Central lacks the jar of Flink's own distribution. The package for Python has it, among others, so pip fetches the
file and nothing is installed.
"""

from __future__ import annotations

import fcntl
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from tests.cluster import wait_until
from tests.programs.jvm import Jars
from tests.programs.process import Program

FLINK = "2.2.1"
CONNECTOR = "5.0.0-2.2"
_WHEEL = f"apache-flink-libraries=={FLINK}"
_UNUSED = "flink-scala"
_OPENED = (
    "java.lang",
    "java.lang.reflect",
    "java.math",
    "java.net",
    "java.nio",
    "java.text",
    "java.time",
    "java.util",
)
_FLAGS = (
    "-Xmx384m",
    "-Dlog4j2.level=WARN",
    *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in (*_OPENED, "java.util.concurrent")),
)


class FlinkJars(Jars):
    """Those of the connector, from Maven, and beside them Flink's."""

    @property
    def folder(self) -> Path:
        """The folder of all jars, filled once."""
        folder = super().folder
        complete = folder.parent / "complete-with-flink"
        with (folder.parent / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not complete.exists():
                self._fill(folder)
                complete.touch()
        return folder

    def _fill(self, folder: Path) -> None:
        with tempfile.TemporaryDirectory(dir=folder.parent) as downloads:
            argv = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-cache-dir"]
            argv += ["--disable-pip-version-check", "-d", downloads, _WHEEL]
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            (wheel,) = Path(downloads).glob("*.whl")
            with zipfile.ZipFile(wheel) as packed:
                for name in packed.namelist():
                    jar = Path(name).name
                    if name.startswith("pyflink/lib/") and not jar.startswith(_UNUSED):
                        (folder / jar).write_bytes(packed.read(name))


JARS = FlinkJars("flink", (f"org.apache.flink:flink-sql-connector-kafka:{CONNECTOR}",), _FLAGS)


class FlinkJob:
    """The job of java/FlinkProgram.java in one process after the other, each from a checkpoint of those before it."""

    def __init__(self, bootstrap: str, folder: Path, naming: str) -> None:
        self._arguments = (bootstrap, str(folder / "checkpoints"), naming)
        self._folder = folder / "checkpoints"
        self._folder.mkdir(parents=True)
        self._log = folder / "flink.log"
        self._program: Program | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._program is not None:
            self._program.kill9()

    def start(self, checkpoint: Path | None = None) -> None:
        """Start the job, or restore it from a checkpoint."""
        argv: Sequence[str] = JARS.command("FlinkProgram.java")
        restored = () if checkpoint is None else (checkpoint.as_uri(),)
        self._program = Program([*argv, *self._arguments, *restored], self._log)
        self._program.start()

    def kill9(self) -> None:
        """SIGKILL; returns once it is gone."""
        self._running.kill9()

    def stop(self) -> None:
        """End with a savepoint: all that was read is committed."""
        self._running.stop(120)
        assert "STOPPED" in self._running.said, self._running.said[-3000:]

    def checkpoints(self) -> list[Path]:
        """Those that are complete, the oldest first."""
        found = self._folder.glob("*/chk-*/_metadata")
        return [one.parent for one in sorted(found, key=lambda one: one.stat().st_mtime_ns)]

    def wait_until(self, condition: Callable[[], object], what: str) -> None:
        """Return once `condition()` holds; fails with the end of what the job said if it ends before."""
        wait_until(lambda: condition() or not self._running.alive, what, 240)
        assert self._running.alive, self._running.said[-3000:]

    def hold_checkpoint(self) -> Path:
        """The next checkpoint, which is complete while nobody has committed anything of it, and nobody ever will."""
        (self._folder / "hold").touch()
        self.wait_until(lambda: "HELD " in self._running.said, "a checkpoint that is held")
        (self._folder / "hold").unlink()
        return self.checkpoints()[-1]

    @property
    def _running(self) -> Program:
        assert self._program is not None
        return self._program

"""Flink: its jars, and a job that copies a topic exactly once, which may be killed and restored from a checkpoint.

The jar of Flink's own distribution is missing on Maven Central. The Python package contains it, so pip fetches that
file, and nothing is installed.
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

from benchmarks.kafka import HOST, free_ports
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
    """The jars of the connector, from Maven, and Flink's own."""

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


_SOURCE = "FlinkProgram.java"
_MANAGER = "org.apache.flink.container.entrypoint.StandaloneApplicationClusterEntryPoint"
_TASKS = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
_CLUSTER = {
    "jobmanager.rpc.address": HOST,
    "jobmanager.bind-host": HOST,
    "rest.address": HOST,
    "rest.bind-address": HOST,
    "rest.bind-port": "0",
    "taskmanager.host": HOST,
    "taskmanager.bind-host": HOST,
    "taskmanager.numberOfTaskSlots": "1",
    "taskmanager.cpu.cores": "1.0",
    "taskmanager.memory.framework.heap.size": "64m",
    "taskmanager.memory.framework.off-heap.size": "64m",
    "taskmanager.memory.jvm-metaspace.size": "128m",
    "taskmanager.memory.jvm-overhead.min": "64m",
    "taskmanager.memory.jvm-overhead.max": "64m",
    "taskmanager.memory.task.heap.size": "128m",
    "taskmanager.memory.task.off-heap.size": "0m",
    "taskmanager.memory.managed.size": "32m",
    "taskmanager.memory.network.min": "32m",
    "taskmanager.memory.network.max": "32m",
    "heartbeat.interval": "500",
    "heartbeat.timeout": "10000",
}
"""Cluster settings. Each task process runs one task, and must know all memory sizes. A killed process is noticed after
two heartbeats."""

JARS = FlinkJars("flink", (f"org.apache.flink:flink-sql-connector-kafka:{CONNECTOR}",), _FLAGS)


class FlinkJob:
    """The job of java/FlinkProgram.java in one process after the other, each from an earlier one's checkpoint."""

    def __init__(self, bootstrap: str, folder: Path, naming: str) -> None:
        self._folder = folder / "checkpoints"
        self._folder.mkdir(parents=True)
        self._arguments = (bootstrap, str(self._folder), naming)
        self._log = folder / "flink.log"
        self._program: Program | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._program is not None:
            self._program.kill9()

    @property
    def said(self) -> str:
        """All output of its processes."""
        return self._log.read_text(errors="replace")

    def start(self, checkpoint: Path | None = None) -> None:
        """Start the job, or restore it from a checkpoint."""
        restored = () if checkpoint is None else (checkpoint.as_uri(),)
        self._program = Program([*self._command(), *self._arguments, *restored], self._log)
        self._program.start()

    def kill9(self) -> None:
        """Kill by SIGKILL, and return once it is gone."""
        self._running.kill9()

    def stop(self) -> None:
        """End with a savepoint: all that was read is committed."""
        self._touch("stop")
        self._running.wait(120)
        assert "STOPPED" in self._running.said, self._running.said[-3000:]

    def checkpoints(self) -> list[Path]:
        """Return the complete checkpoints, the oldest first."""
        found = self._folder.glob("*/chk-*/_metadata")
        return [path.parent for path in sorted(found, key=lambda path: path.stat().st_mtime_ns)]

    def wait_until(self, condition: Callable[[], object], what: str) -> None:
        """Return once `condition()` holds; fails with the end of the job's output if it ends before."""
        wait_until(lambda: condition() or not all(process.alive for process in self._processes()), what, 240)
        for process in self._processes():
            assert process.alive, process.said[-3000:]

    def hold_checkpoint(self) -> Path:
        """Return the next checkpoint, which is complete although none of its transactions is, or will be, committed."""
        self._touch("hold")
        self.wait_until(lambda: "HELD " in self._running.said, "a checkpoint that is held")
        (self._folder / "hold").unlink()
        return self.checkpoints()[-1]

    def pause_checkpoints(self, last: int = 0) -> Path:
        """Return the last checkpoint, at least number `last`.

        No other begins until `go_on`, so its transactional ids are not reused.
        """
        written = self._folder / "pause.written"
        written.write_text(str(last))
        written.rename(self._folder / "pause")
        self.wait_until(lambda: "PAUSED " in self._running.said, "a pause of checkpoints")
        return self.checkpoints()[-1]

    def fail_checkpoints(self, count: int) -> None:
        """Return once `count` checkpoints failed although all their data was written.

        Failures continue until `go_on`.
        """
        self._touch("fail")
        self.wait_until(
            lambda: self._running.said.count("UNWRITTEN ") >= count, f"{count} checkpoints that fail"
        )

    def go_on(self) -> None:
        """Let checkpoints begin and be written again."""
        for name in ("pause", "fail"):
            (self._folder / name).unlink(missing_ok=True)

    def _command(self) -> Sequence[str]:
        return JARS.command(_SOURCE)

    def _processes(self) -> Sequence[Program]:
        return (self._running,)

    @property
    def _running(self) -> Program:
        assert self._program is not None
        return self._program

    def _touch(self, name: str) -> None:
        (self._folder / name).touch()


class FlinkCluster(FlinkJob):
    """The same job in a cluster: a process manages it, and two others have a task each.

    `start` and `kill9` concern the manager. Task processes reconnect to a restarted manager.
    """

    def __init__(self, bootstrap: str, folder: Path, naming: str) -> None:
        super().__init__(bootstrap, folder, naming)
        (port,) = free_ports(1)
        settings = _CLUSTER | {"jobmanager.rpc.port": str(port), "io.tmp.dirs": str(folder / "temporary")}
        (folder / "config.yaml").write_text("".join(f"{key}: {value}\n" for key, value in settings.items()))
        self._configuration = ("--configDir", str(folder))
        runs = [*JARS.command(_SOURCE)[:-1], _TASKS, *self._configuration]
        self.tasks = [Program(runs, folder / f"tasks-{number}.log") for number in range(2)]

    def __enter__(self) -> Self:
        for task in self.tasks:
            task.start()
        return self

    def __exit__(self, *_: object) -> None:
        super().__exit__(*_)
        for task in self.tasks:
            task.kill9()

    def _command(self) -> Sequence[str]:
        manager = (_MANAGER, *self._configuration, "--job-classname", Path(_SOURCE).stem)
        return [*JARS.command(_SOURCE)[:-1], *manager]

    def _processes(self) -> Sequence[Program]:
        return (self._running, *self.tasks)

"""`ottla spark run` as a process: its output, its checkpoint, and its end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

END_S = 90.0


class Driver:
    """A run of the pipeline in `file`, whose folder also has the checkpoint and the driver's output."""

    def __init__(self, file: Path, bootstrap: str, words: Sequence[str] = ()) -> None:
        self._folder = file.parent
        argv = [sys.executable, "-m", "ottla", "spark", "run", str(file), "-b", bootstrap, "-o", "json"]
        self._out, self._log = self._folder / "told.jsonl", self._folder / "driver.log"
        with self._out.open("wb") as out, self._log.open("ab") as log:
            self._process = subprocess.Popen([*argv, *words], stdout=out, stderr=log, start_new_session=True)

    @property
    def told(self) -> list[dict[str, Any]]:
        """Micro-batches that this run has finished."""
        lines = self._out.read_text().split("\n")[:-1]
        return [json.loads(line) for line in lines]

    @property
    def said(self) -> str:
        """Standard error of all runs."""
        return self._log.read_text()

    @property
    def status(self) -> int | None:
        """Exit status of the process; None while it runs."""
        return self._process.poll()

    def under_way(self) -> int | None:
        """Return the micro-batch that was begun and is not committed, by Spark's checkpoint."""
        begun, done = (
            {int(path.name) for path in (self._folder / "checkpoint" / kind).glob("[0-9]*")}
            for kind in ("offsets", "commits")
        )
        return max(begun - done, default=None)

    def wait(self, timeout_s: float = END_S) -> int:
        """Wait for the end; return the exit status."""
        return self._process.wait(timeout_s)

    def interrupt(self, timeout_s: float = END_S) -> int:
        """Send SIGINT to all processes of the group, as Ctrl-C on a terminal does; return the exit status."""
        os.killpg(self._process.pid, signal.SIGINT)
        return self.wait(timeout_s)

    def kill(self) -> None:
        """Send SIGKILL to the driver, its JVM and their workers, all at once."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

"""`ottla spark run` as a process: what it tells, where its checkpoint is, and how it is ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.cluster import wait_until

WAIT_S = 90.0


class Driver:
    """One run. At the end of the block nothing of it is left."""

    def __init__(self, file: Path, bootstrap: str, words: Sequence[str] = ()) -> None:
        self._folder = file.parent
        argv = [
            sys.executable,
            "-m",
            "ottla",
            "spark",
            "run",
            str(file),
            "-b",
            bootstrap,
            "-o",
            "json",
            *words,
        ]
        self._out, self._log = self._folder / "told.jsonl", self._folder / "driver.log"
        with self._out.open("wb") as out, self._log.open("ab") as log:
            self._process = subprocess.Popen(argv, stdout=out, stderr=log, start_new_session=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def told(self) -> list[dict[str, Any]]:
        """The micro-batches that are done, by this run."""
        lines = self._out.read_text().split("\n")[:-1]
        return [json.loads(line) for line in lines]

    @property
    def said(self) -> str:
        """On standard error, by all runs."""
        return self._log.read_text()

    def under_way(self) -> int | None:
        """The micro-batch that was begun and is not committed, by Spark's checkpoint."""
        begun, done = (
            {int(one.name) for one in (self._folder / "checkpoint" / kind).glob("[0-9]*")}
            for kind in ("offsets", "commits")
        )
        return max(begun - done, default=None)

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Fails when the driver ends before, or after WAIT_S."""
        deadline = time.monotonic() + WAIT_S
        while not condition():
            assert self._process.poll() is None, f"the driver has ended before {what}:\n{self.said[-3000:]}"
            assert time.monotonic() < deadline, f"not within {WAIT_S:.0f} s: {what}\n{self.said[-3000:]}"
            time.sleep(0.02)

    def wait(self) -> int:
        """Its exit status."""
        return self._process.wait(WAIT_S)

    def interrupt(self) -> int:
        """Ctrl-C on a terminal, which all processes of the group hear; the exit status."""
        os.killpg(self._process.pid, signal.SIGINT)
        return self.wait()

    def kill(self) -> None:
        """SIGKILL to the driver and its JVM at once."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def alive(*words: str) -> dict[int, int]:
    """Process ids, and those of their parents, of command lines with all of these words."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended meanwhile
            continue
        if all(word in line for word in words):
            found[int(folder.name)] = parent
    return found


def wait_gone(*words: str) -> None:
    """Until there is no such process: those that lost their parent take a moment."""
    wait_until(lambda: not alive(*words), f"no process of {' '.join(words)}", WAIT_S)

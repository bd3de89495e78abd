"""`ottla spark run` as a process of a test, and its remaining processes."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks import spark_driver
from tests.cluster import wait_until

WAIT_S = 90.0


class Driver(spark_driver.Driver):
    """One run. No process of it is left at the end of the block."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until the condition holds; fail if the driver ends before, or after WAIT_S."""
        deadline = time.monotonic() + WAIT_S
        while not condition():
            assert self.status is None, f"the driver has ended before {what}:\n{self.said[-3000:]}"
            assert time.monotonic() < deadline, f"not within {WAIT_S:.0f} s: {what}\n{self.said[-3000:]}"
            time.sleep(0.02)


def alive(*words: str) -> dict[int, int]:
    """Return process ids, with their parents', of command lines with all of these words."""
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
    """Wait until there is no such process, since orphans take a moment."""
    wait_until(lambda: not alive(*words), f"no process of {' '.join(words)}", WAIT_S)

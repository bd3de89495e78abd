"""Processes that write tables, measured until they end: their CPU and their memory; for the benchmarks of the lake."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyiceberg.table import Table as IcebergTable

from ottla.lake.iceberg.catalogs import LakePlace, open_catalog

from .cpu import tree_cpu_s

LOOK_S = 0.05
TIMEOUT_S = 900.0
_ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""Without this variable Python keeps bytecode of a checkout, as it does for an installed package."""


@dataclass(frozen=True)
class Reading:
    """A run of a writer."""

    rows_per_s: float
    mb_per_s: float
    cpu_s: float
    rows_per_cpu_s: float
    rss_mib: float


class Run:
    """A process with its descendants, measured until it ends."""

    def __init__(self, argv: Sequence[str], log: Path) -> None:
        self._log = log
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                argv, stdout=out, stderr=out, start_new_session=True, env=_ENVIRONMENT
            )
        self.began = time.monotonic()
        self.cpu_s = 0.0
        self.rss_mib = 0.0

    def look(self) -> bool:
        """Read CPU and memory. Returns whether the process still runs."""
        if self.process.poll() is not None:
            return False
        self.cpu_s = max(self.cpu_s, tree_cpu_s(self.process.pid))
        self.rss_mib = max(self.rss_mib, _most_memory_mib(self.process.pid))
        return True

    def wait(self, allowed: int = 0) -> None:
        """Wait for the end. Raises SystemExit with the log for another status than the allowed one."""
        deadline = time.monotonic() + TIMEOUT_S
        while self.look():
            if time.monotonic() > deadline:
                self.kill()
                raise SystemExit(f"no end within {TIMEOUT_S:.0f} s: {self.said()}")
            time.sleep(LOOK_S)
        if self.process.returncode != allowed:
            raise SystemExit(f"ended with {self.process.returncode}: {self.said()}")

    def wait_for(self, reached: Callable[[], bool], every_s: float = LOOK_S) -> None:
        """Return once a condition holds. Raises SystemExit if the process ends before, or after `TIMEOUT_S`."""
        deadline = time.monotonic() + TIMEOUT_S
        while not reached():
            if not self.look() or time.monotonic() > deadline:
                raise SystemExit(
                    f"the writer did not come so far; its status is {self.process.poll()}: {self.said()}"
                )
            time.sleep(every_s)

    def kill(self) -> None:
        """Send SIGKILL to all its processes, and wait until it is gone."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def said(self) -> str:
        """Return the end of its log."""
        return self._log.read_text(errors="replace")[-3000:]

    def reading(self, rows: int, size: int, took_s: float) -> Reading:
        """Return the readings of the whole run, for a number of rows with so many bytes of values."""
        return Reading(rows / took_s, size / took_s / 1e6, self.cpu_s, rows / self.cpu_s, self.rss_mib)


def _most_memory_mib(group: int) -> float:
    """Return the most memory that each process of a group has held, added up."""
    found = 0.0
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                if os.getpgid(int(folder.name)) == group:
                    found += _peak_mib((folder / "status").read_text())
            except OSError:  # the process has ended
                continue
    return found


def _peak_mib(status: str) -> float:
    lines = [line.split() for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(lines[0][1]) / 1024 if lines else 0.0


def module(*words: str) -> list[str]:
    """Return the argv of a module of this Python."""
    return [sys.executable, "-m", *words]


def worker_argv(bootstrap: str, lake: Path, topic: str) -> list[str]:
    """Return the argv of a worker of the lake that writes one topic."""
    return module("ottla", "lake", "run", "--lake", str(lake), "-b", bootstrap, topic)


def table_of(lake: Path, name: str) -> IcebergTable | None:
    """Return a table of a lake's folder; None if it does not exist yet."""
    if not (lake / "catalog.db").exists():
        return None
    catalog = open_catalog(LakePlace(lake))
    return catalog.load_table(name) if catalog.table_exists(name) else None


def rows_of(lake: Path, name: str) -> int:
    """Return the number of rows of a table, as its newest snapshot reports it; 0 if there is none."""
    table = table_of(lake, name)
    snapshot = table.current_snapshot() if table is not None else None
    if snapshot is None or snapshot.summary is None:
        return 0
    return int(snapshot.summary["total-records"] or 0)

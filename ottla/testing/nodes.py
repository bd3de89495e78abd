"""Nodes of a running cluster as processes, which can be killed, paused and started again."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..cli.local_cluster.liveness import ENDED, is_alive, state_of
from .failures import LocalClusterError
from .processes import Process, Start, executed

END_TIMEOUT_S = 45.0
"""Longest time for a process to end: a controlled stop kills the remaining processes after 30 s."""
STOPPED_OR_ENDED = "Tt" + ENDED


@dataclass
class Node:
    """A broker or quorum node as a process of a local cluster. `entry` is its description in cluster.json: id, port,
    pid, argv, log file."""

    role: str
    entry: dict[str, Any]
    process: Process | None = None
    """Process that was started here; None if `ottla up` started it."""
    paused: bool = False
    start: Start = executed
    """Function that starts the process again."""

    @property
    def id(self) -> int:
        """Id of the node in the cluster."""
        return int(self.entry["id"])

    @property
    def port(self) -> int:
        """TCP port on which the node listens: for clients if it is a broker, for brokers if it is a quorum node."""
        return int(self.entry["port"])

    @property
    def address(self) -> str:
        """Host and port."""
        return f"{self.entry.get('host', '127.0.0.1')}:{self.port}"

    @property
    def pid(self) -> int:
        """Id of the current or last process."""
        return int(self.entry["pid"]) if self.process is None else self.process.pid

    @property
    def alive(self) -> bool:
        """True until the process has ended, even while it is paused."""
        return is_alive(self.pid) if self.process is None else self.process.poll() is None

    def kill9(self) -> None:
        """Send SIGKILL; return once the process is gone."""
        self._end(signal.SIGKILL)
        self.paused = False

    def terminate(self) -> None:
        """Send SIGTERM for a controlled stop; return once the process is gone."""
        self._end(signal.SIGTERM)

    def pause(self) -> None:
        """Send SIGSTOP: the process hangs and keeps its connections. Return once it is stopped."""
        os.kill(self.pid, signal.SIGSTOP)
        self.paused = True
        self._wait(lambda: state_of(self.pid) in STOPPED_OR_ENDED, "stopped after SIGSTOP")

    def resume(self) -> None:
        """Send SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)
        self.paused = False

    def restart(self) -> None:
        """Start the node's process again with the recorded command line, and so with the same data and port. Returns at
        once. Raises LocalClusterError if the process still runs."""
        if self.alive:
            raise LocalClusterError(f"{self.role} {self.id} still runs (pid {self.pid})")
        with Path(self.entry["log"]).open("ab") as log:
            entry = self.entry
            self.process = self.start(
                entry["argv"], cwd=Path(entry["cwd"]), env=entry["env"], output=log.fileno()
            )
        if pid_file := self.entry.get("pid_file"):
            # The node also writes this file later. If this process is killed before that, `ottla up` still has to know
            # which process to stop.
            Path(pid_file).write_text(f"{self.process.pid}\n")

    def log(self) -> str:
        """Return the content of the node's log file so far."""
        return read_log(Path(self.entry["log"]))

    def _end(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)
        self._wait(lambda: not self.alive, f"ended after {number.name}")

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + END_TIMEOUT_S
        pause_s = 0.001
        while not condition():
            if time.monotonic() > deadline:
                node = f"{self.role} {self.id} (pid {self.pid})"
                raise LocalClusterError(f"{node} has not {what} within {END_TIMEOUT_S:g} s")
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, 0.1)


def read_log(path: Path) -> str:
    """Return the content of a log file; empty if the file is missing."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""

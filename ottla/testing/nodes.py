"""Nodes of a running cluster as processes: killed, paused, started again."""

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
"""How long a process may take to end: one that stops in good order kills what does not after 30 s."""
STOPPED_OR_ENDED = "Tt" + ENDED


@dataclass
class Node:
    """One process of the cluster, by its entry in cluster.json."""

    role: str
    entry: dict[str, Any]
    process: Process | None = None
    """The process when it was started here."""
    paused: bool = False
    start: Start = executed
    """How it is started again."""

    @property
    def id(self) -> int:
        """Its number in the cluster."""
        return int(self.entry["id"])

    @property
    def port(self) -> int:
        """Where it listens for clients, or as a quorum node for brokers."""
        return int(self.entry["port"])

    @property
    def address(self) -> str:
        """The port with its host."""
        return f"{self.entry.get('host', '127.0.0.1')}:{self.port}"

    @property
    def pid(self) -> int:
        """The process that runs it, or did last."""
        return int(self.entry["pid"]) if self.process is None else self.process.pid

    @property
    def alive(self) -> bool:
        """Whether that process has not ended; a paused one has not."""
        return is_alive(self.pid) if self.process is None else self.process.poll() is None

    def kill9(self) -> None:
        """SIGKILL; returns once the process is gone."""
        self._end(signal.SIGKILL)
        self.paused = False

    def terminate(self) -> None:
        """SIGTERM: a controlled stop; returns once the process is gone."""
        self._end(signal.SIGTERM)

    def pause(self) -> None:
        """SIGSTOP: the process hangs and keeps its connections; returns once it does."""
        os.kill(self.pid, signal.SIGSTOP)
        self.paused = True
        self._wait(lambda: state_of(self.pid) in STOPPED_OR_ENDED, "stopped after SIGSTOP")

    def resume(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)
        self.paused = False

    def restart(self) -> None:
        """Run the entry's argv again: same data, same port. Returns at once."""
        if self.alive:
            raise LocalClusterError(f"{self.role} {self.id} still runs (pid {self.pid})")
        with Path(self.entry["log"]).open("ab") as log:
            entry = self.entry
            self.process = self.start(
                entry["argv"], cwd=Path(entry["cwd"]), env=entry["env"], output=log.fileno()
            )
        if pid_file := self.entry.get("pid_file"):
            # The node does so itself when it has come that far; should this process be killed before that,
            # `ottla up` has to know whom to stop.
            Path(pid_file).write_text(f"{self.process.pid}\n")

    def log(self) -> str:
        """What the node has written so far."""
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
    """What stands in a log file; nothing when there is none."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""

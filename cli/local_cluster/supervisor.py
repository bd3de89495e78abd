"""The node processes of a local cluster: started together, watched but not restarted, brokers stopped before the
quorum."""

from __future__ import annotations

import os
import selectors
import shlex
import signal
import socket
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.context import ForkProcess
from pathlib import Path

from ... import __file__ as _package_file
from ..nodes.settings import variable_of
from ..terminal.progress import ProgressLine
from ..terminal.text import counted
from . import forked_node
from .layout import ClusterLayout, Member
from .liveness import is_alive

STOP_GRACE_S = 30.0
"""Seconds that a node has to stop after SIGTERM before it is killed."""
LAST_WORDS_BYTES_MAX = 64 * 1024
"""The most bytes of a log that are searched for its last line."""
PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TZ", "VIRTUAL_ENV", "LD_LIBRARY_PATH")
PASSED_ON_PREFIXES = ("PYTHON", "OTTLA_", "KAFKA_", "MALLOC_")


@dataclass(slots=True)
class Child:
    """The process of a node that `ottla up` started."""

    member: Member
    process: ForkProcess
    pid: int
    pidfd: int

    @property
    def running(self) -> bool:
        """True if the node's process has not ended."""
        return self.process.exitcode is None

    @property
    def exit_code(self) -> int:
        """The exit code of the node's ended process; negative if a signal ended it."""
        code = self.process.exitcode
        assert code is not None
        return code


class Supervisor:
    """A supervisor of the node processes of a local cluster.

    It runs in the main thread, so that signals end its waiting.
    """

    def __init__(self, layout: ClusterLayout, first_users: Sequence[str] = ()) -> None:
        """Keep the cluster's layout; `first_users` are `--add-scram` arguments for a cluster that is not formed yet."""
        self._layout = layout
        self._first_users = first_users
        self._children: list[Child] = []
        self._log_begins: dict[Member, int] = {}
        """The size of each node's log before the start: earlier text belongs to other runs."""
        self._selector = selectors.DefaultSelector()
        self._wake, self._signalled = socket.socketpair()
        self._stop_requests = 0
        own_variables = {variable_of(key) for key in layout.own_keys}
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if name in PASSED_ON or (name.startswith(PASSED_ON_PREFIXES) and name not in own_variables)
        }
        self.directory = str(Path(_package_file).resolve().parents[1])

    def watch_signals(self) -> None:
        """Turn SIGINT and SIGTERM into requests to stop the cluster, which end `wait`."""
        for end in (self._wake, self._signalled):
            end.setblocking(False)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)
        signal.set_wakeup_fd(self._signalled.fileno(), warn_on_full_buffer=False)
        self._selector.register(self._wake, selectors.EVENT_READ)

    @property
    def stopping(self) -> bool:
        """True if a signal has requested to stop the cluster."""
        return self._stop_requests > 0

    def argv(self, member: Member) -> list[str]:
        """Return the command line that runs one node alone, in `directory` and with `environment`."""
        return [sys.executable, "-m", "ottla", *self._words(member)]

    def shell_command(self, member: Member) -> str:
        """Return the shell's command that starts one node alone, in any folder."""
        return f"cd {shlex.quote(self.directory)} && {shlex.join(self.argv(member))}"

    def _words(self, member: Member) -> list[str]:
        layout = self._layout
        files = ["-c", str(layout.settings_file(member)), "--pid-file", str(layout.pid_file(member))]
        return [member.role, *files]

    def start(self, members: Iterable[Member]) -> None:
        """Start the processes of all `members` at once."""
        for member in members:
            self._log_begins[member] = self._log_bytes(member)
            forked_node.load(
                member.role
            )  # Quorum nodes start first, so they do not load the modules of brokers.
            process = forked_node.fork(
                member.name,
                [*self._words(member), *self._forming(member)],
                directory=self.directory,
                environment=self.environment,
                log=self._layout.log_file(member),
            )
            assert process.pid is not None  # The process was started.
            child = Child(member, process, process.pid, os.pidfd_open(process.pid))
            self._children.append(child)
            self._selector.register(child.pidfd, selectors.EVENT_READ, child)

    def _forming(self, member: Member) -> list[str]:
        """Return the arguments that a quorum node gets only when it forms the cluster."""
        users = self._first_users if member.role == "quorum" else ()
        return [word for user in users for word in ("--add-scram", user)]

    def process(self, member: Member) -> tuple[int, list[str]]:
        """Return the process id and command line of a started node."""
        pid = next(child.pid for child in self._children if child.member == member)
        return pid, self.argv(member)

    def wait(self, timeout_s: float | None) -> list[Child]:
        """Wait until a node's process dies, a signal arrives or `timeout_s` seconds are over.

        Returns the processes that died.
        """
        dead: list[Child] = []
        for key, _ in self._selector.select(timeout_s):
            if key.data is None:
                self._wake.recv(64)
            else:
                self._selector.unregister(key.fd)
                key.data.process.join()
                dead.append(key.data)
        return dead

    def last_words(self, member: Member) -> str:
        """Return the last line that a node logged in this run; empty if there is none."""
        begins = self._log_begins.get(member, 0)
        try:
            with self._layout.log_file(member).open("rb") as log:
                log.seek(max(begins, self._log_bytes(member) - LAST_WORDS_BYTES_MAX))
                lines = log.read().decode(errors="replace").strip().splitlines()
        except OSError:
            return ""
        return lines[-1] if lines else ""

    def _log_bytes(self, member: Member) -> int:
        try:
            return self._layout.log_file(member).stat().st_size
        except OSError:
            return 0

    def stop(self) -> None:
        """Stop the brokers, then the quorum nodes, including nodes that other processes restarted.

        Nodes that still run after the grace period are killed.
        """
        for role in ("broker", "quorum"):
            mine = {child.pid: child for child in self._children if child.member.role == role}
            running = {pid for pid, child in mine.items() if child.running}
            unauthenticated = {
                pid
                for member in self._layout.members
                if member.role == role and (pid := self._layout.running(member)) and pid not in mine
            }
            _signal_all(running | unauthenticated, signal.SIGTERM)
            # A stopped process handles SIGTERM only after SIGCONT.
            _signal_all(running | unauthenticated, signal.SIGCONT)
            requests = self._stop_requests
            deadline = time.monotonic() + STOP_GRACE_S
            with ProgressLine() as line:
                while left := _still_running(running | unauthenticated, mine):
                    line.show(f"ottla up: stopping {counted(len(left), f'{role} node')}; Control-C kills")
                    if time.monotonic() > deadline or self._stop_requests > requests:
                        _signal_all(left, signal.SIGKILL)
                    self.wait(0.02)

    def _on_signal(self, number: int, frame: object) -> None:
        self._stop_requests += 1


def _still_running(pids: Iterable[int], children: Mapping[int, Child]) -> set[int]:
    running = set()
    for pid in pids:
        if (child := children.get(pid)) is not None:
            if child.running:
                running.add(pid)
        elif is_alive(pid):
            running.add(pid)
    return running


def _signal_all(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue

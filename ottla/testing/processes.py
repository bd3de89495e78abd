"""Starts commands as child processes. Tests of Ottla itself replace `executed` with a cheaper method."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from signal import Signals
from typing import Protocol


class Process(Protocol):
    """The part of `subprocess.Popen` that this package uses."""

    @property
    def pid(self) -> int:
        """Process id."""

    def poll(self) -> int | None:
        """Return the exit code, negative if a signal ended the process; None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the process to end, and return its exit code. Raises TimeoutExpired."""

    def send_signal(self, sig: int | Signals, /) -> None:
        """Send a signal, unless the process has ended."""

    def terminate(self) -> None:
        """Send SIGTERM."""

    def kill(self) -> None:
        """Send SIGKILL."""


class Start(Protocol):
    """A function that starts a command as a child process in a separate session. The command has no input, and its
    output goes to an open file."""

    def __call__(self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], output: int) -> Process:
        """Start the command `argv` in the folder `cwd`, and return at once. `output` is the descriptor of the file for
        stdout and stderr."""


def executed(argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], output: int) -> Process:
    """Start the command with `subprocess.Popen`."""
    return subprocess.Popen(
        argv,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,  # Control-C is for the tests; and a stopped process would get SIGHUP when they end
    )

"""How commands are started: executed as any user's are. Tests of Ottla itself have another way, which costs less."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from signal import Signals
from typing import Protocol


class Process(Protocol):
    """What a `subprocess.Popen` offers here."""

    @property
    def pid(self) -> int:
        """Its id."""

    def poll(self) -> int | None:
        """Its exit code, negative if a signal ended it; None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """The exit code once it has ended. Raises TimeoutExpired."""

    def send_signal(self, sig: int | Signals, /) -> None:
        """Send it, if the process has not ended."""

    def terminate(self) -> None:
        """SIGTERM."""

    def kill(self) -> None:
        """SIGKILL."""


class Start(Protocol):
    """Starts a command that reads nothing and writes to an open file, in a session of its own."""

    def __call__(self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], output: int) -> Process:
        """Return at once."""


def executed(argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], output: int) -> Process:
    """The usual way."""
    return subprocess.Popen(
        argv,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,  # Control-C is for the tests; and one that is stopped would get SIGHUP at their end
    )

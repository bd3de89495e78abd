"""Helpers for child processes: they end with this process, and their exit codes become words."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable

from ..failures import CommandFailed

PR_SET_PDEATHSIG = 1


def die_with_parent(command: str) -> Callable[[], None]:
    """Return a function that a child process calls before exec, so that the kernel kills the child if this process is
    killed."""
    if not sys.platform.startswith("linux"):
        raise CommandFailed(f"{command} needs Linux")
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def set_death_signal() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # The parent was killed before prctl took effect.
            os._exit(1)

    return set_death_signal


def describe_exit(code: int) -> str:
    """Return a process's end in words: `killed by SIGKILL` or `exit code 1`."""
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

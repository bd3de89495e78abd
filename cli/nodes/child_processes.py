"""Processes that a process of ours starts: they end with it, and their end is told in words."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable

from ..failures import CommandFailed

PR_SET_PDEATHSIG = 1


def die_with_parent(command: str) -> Callable[[], None]:
    """What a child runs before exec so that the kernel ends it should this process be killed outright. Raises
    CommandFailed where that cannot be had; `command` is who needs it."""
    if not sys.platform.startswith("linux"):
        raise CommandFailed(f"{command} needs Linux")
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def set_death_signal() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it was killed before, and nobody would tell
            os._exit(1)

    return set_death_signal


def describe_exit(code: int) -> str:
    """A process's end in words: `killed by SIGKILL` or `exit code 1`."""
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

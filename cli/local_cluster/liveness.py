"""The state of processes on this machine."""

from __future__ import annotations

import os
from pathlib import Path

ENDED = "ZX"


def is_alive(pid: int) -> bool:
    """Return whether a process exists that is no zombie; a stopped process is alive.

    A process is alive while any of its threads is. The first thread of a killed process may end before the others, and
    the process keeps its ports and locks until the last thread has ended.
    """
    if state_of(pid) not in ENDED:
        return True
    try:
        return len(os.listdir(f"/proc/{pid}/task")) > 1
    except OSError:
        return False


def state_of(pid: int) -> str:
    """Return the kernel's state letter of a process's first thread; X if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"

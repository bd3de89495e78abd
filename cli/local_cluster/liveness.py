"""Whether a process of this machine still runs, or holds what it had."""

from __future__ import annotations

import os
from pathlib import Path

ENDED = "ZX"


def is_alive(pid: int) -> bool:
    """Whether a process runs or is stopped; one that ended and was not waited for is not alive.

    It is alive while any of its threads is. The first thread of a killed process may be gone before others are, and
    until the last has gone the process keeps its ports and locks.
    """
    if state_of(pid) not in ENDED:
        return True
    try:
        return len(os.listdir(f"/proc/{pid}/task")) > 1
    except OSError:
        return False


def state_of(pid: int) -> str:
    """What the kernel says of the first thread of a process, as a letter; X when there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"

"""Forks of a process in which other tests have run."""

from __future__ import annotations

import gc
import os


def fork() -> int:
    """As `os.fork`, but the child never collects what its parent has left as garbage.

    Clients written in C may be among that. Their destructors wait for threads that a child does not have, and end it
    with SIGABRT or SIGSEGV.
    """
    number = os.fork()
    if number == 0:
        gc.freeze()
    return number

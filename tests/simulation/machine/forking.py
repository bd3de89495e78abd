"""Forks of a process that has run other tests."""

from __future__ import annotations

import gc
import os


def fork() -> int:
    """Fork like `os.fork`, but prevent the child from collecting its parent's garbage.

    The garbage may include clients written in C. Their destructors wait for threads that a child does not have, and end
    it with SIGABRT or SIGSEGV.
    """
    number = os.fork()
    if number == 0:
        gc.freeze()
    return number

"""A program of an example that kills itself at a chosen step of its event loop, between two of its awaits.

python -m tests.examples.killed_at_a_step 42 examples.outbox.relay --database shop.db
"""

from __future__ import annotations

import asyncio
import os
import runpy
import signal
import sys
from typing import Any


def kill_at(step: int) -> None:
    """Let all event loops of this process count their steps, and kill the process at this step."""
    loop: Any = asyncio.BaseEventLoop
    original, left = loop._run_once, step

    def counted(self: Any) -> None:
        nonlocal left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        original(self)

    loop._run_once = counted


if __name__ == "__main__":
    kill_at(int(sys.argv[1]))
    sys.argv = sys.argv[2:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)

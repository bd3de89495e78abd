"""Processes that end with their parent."""

from __future__ import annotations

import subprocess
import sys

ORPHAN = """
import os, time
from ottla.cli.nodes.child_processes import die_with_parent
set_death_signal = die_with_parent("a test")
if os.fork() == 0:
    supervisor = os.getppid()
    if %r:
        while os.getppid() == supervisor:
            time.sleep(0.01)
    set_death_signal()
    print("goes on", flush=True)
    os._exit(0)
if not %r:
    os.wait()
"""


def said_by_a_child(*, parent_is_gone: bool) -> str:
    program = ORPHAN % (parent_is_gone, parent_is_gone)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout


def test_a_child_of_one_that_was_killed_just_now_does_not_go_on() -> None:
    """The kernel signals a parent's end once. A child that asks later would run for ever."""
    assert said_by_a_child(parent_is_gone=False) == "goes on\n"
    assert said_by_a_child(parent_is_gone=True) == ""

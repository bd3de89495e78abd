"""A process is alive until nothing of it is left that holds its ports and locks."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from ottla.cli.local_cluster.liveness import is_alive, state_of

EXIT_OF_ONE_THREAD = {"x86_64": 60, "aarch64": 93}
"""The number of Linux's call `exit`, which ends the calling thread alone."""
FIRST_THREAD_ENDS = """
import ctypes, pathlib, sys, threading, time

def tell():
    stat = pathlib.Path("/proc/self/stat")
    while stat.read_text().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.001)
    print("alone", flush=True)
    sys.stdin.read()

threading.Thread(target=tell).start()
ctypes.CDLL(None).syscall(int(sys.argv[1]), 0)
"""


def test_a_process_lives_while_any_of_its_threads_does() -> None:
    number = EXIT_OF_ONE_THREAD.get(platform.machine())
    if number is None:
        pytest.skip(f"the number of the call is not known for {platform.machine()}")
    with subprocess.Popen(
        [sys.executable, "-c", FIRST_THREAD_ENDS, str(number)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"alone\n"
        assert state_of(child.pid) == "Z"
        assert is_alive(child.pid)
        child.kill()
        child.wait()
        assert not is_alive(child.pid)


def test_one_that_ended_and_was_not_waited_for_is_not_alive() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert state_of(child.pid) == "Z"
        assert not is_alive(child.pid)

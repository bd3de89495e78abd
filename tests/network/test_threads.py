"""Blocking work runs beside the event loop, also once the main thread has ended."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from contextvars import ContextVar

import pytest

from ottla.network.threads import in_thread

MARK: ContextVar[str] = ContextVar("mark")

AFTER_THE_MAIN_THREAD = """
import asyncio, atexit, threading
from ottla.network.dialing import connected_socket
from ottla.network.threads import in_thread

async def work():
    await asyncio.sleep(0)
    before = threading.get_ident()
    beside = await in_thread(threading.get_ident)
    try:
        await in_thread(int, "none")
    except ValueError as error:
        print(error)
    try:
        await connected_socket("localhost", 1)
    except ConnectionRefusedError:
        print("refused")
    return before != beside

def later():
    threading.main_thread().join()
    print(asyncio.run(work()))

asyncio.run(in_thread(int))
threading.Thread(target=later).start()
atexit.register(lambda: print(asyncio.run(work()) in (True, False)))
"""
SAID = "invalid literal for int() with base 10: 'none'\nrefused\nTrue\n"


async def test_it_has_the_caller_s_context_and_raises_what_the_work_does() -> None:
    MARK.set("here")
    assert await in_thread(MARK.get) == "here"
    assert await in_thread(threading.get_ident) != threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        await in_thread(divmod, 1, 0)


async def test_a_loop_that_has_given_its_threads_up_says_so() -> None:
    await asyncio.get_running_loop().shutdown_default_executor()
    with pytest.raises(RuntimeError, match="shutdown"):
        await in_thread(int)


async def test_it_goes_on_in_the_moment_in_which_executors_have_ended_and_the_main_thread_has_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("concurrent.futures.thread._shutdown", True)
    assert await in_thread(threading.get_ident) != threading.get_ident()


def test_it_goes_on_after_the_main_thread_and_at_the_end_of_the_interpreter() -> None:
    done = subprocess.run(
        [sys.executable, "-c", AFTER_THE_MAIN_THREAD], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, SAID + SAID, "")

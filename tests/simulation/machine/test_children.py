"""Child processes on the machine: a process can start, communicate with, await and kill them."""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import sys
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from ottla.dataplane.log.compaction.job import CleaningFailed, CleaningJob, Reply
from ottla.dataplane.storage.cleaning_process import CleaningProcess, CleaningProcessDied
from tests.simulation.machine.disk import VirtualDisk
from tests.simulation.machine.forking import fork
from tests.simulation.machine.host import Host
from tests.simulation.machine.installed import installed
from tests.simulation.machine.machine import Machine
from tests.simulation.machine.network import Network
from tests.simulation.machine.process import Process
from tests.simulation.machine.trace import Trace

T = TypeVar("T")

JOB = CleaningJob(
    Path("/simulated/alpha/t-0"), [(0, 100), (10, 0)], 0, 10, 10, 0, 0, 1 << 20, 1 << 20, 4096, {}
)
FOLD = (sys.executable, "-m", "ottla.metadata_quorum.raft.fold")


def apart(play: Callable[[], T]) -> T:
    """Return the result of `play`, run in a forked process because it changes Python's modules."""
    reading, writing = os.pipe()
    process = fork()
    if process == 0:
        outcome: tuple[bool, Any]
        try:
            outcome = True, play()
        except BaseException:
            outcome = False, traceback.format_exc()
        os.write(writing, pickle.dumps(outcome))
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        worked, result = pickle.load(pipe)
    os.waitpid(process, 0)
    assert worked, result
    return result  # type: ignore[no-any-return]


class Left:
    """Garbage that reports its collection."""

    def __init__(self, ends: list[str]) -> None:
        self.told, self.itself = ends, self

    def __del__(self) -> None:
        self.told.append("collected")


def test_a_process_apart_leaves_the_garbage_of_others_alone() -> None:
    ends: list[str] = []

    def collect() -> list[str]:
        gc.collect()
        return ends

    gc.disable()
    try:
        Left(ends)
        assert apart(collect) == []
    finally:
        gc.enable()
    gc.collect()
    assert ends == ["collected"]


class Room:
    """A host with a process whose main may start other processes."""

    def __init__(self, seed: int = 1) -> None:
        self.lines: list[str] = []
        self.machine = Machine(seed, Trace(self.lines.append))
        self.machine.network = Network(self.machine)
        self.host = Host(self.machine, "alpha", "10.0.0.1", VirtualDisk(self.machine, "alpha"))

    def run(self, main: Callable[[], Awaitable[Any]], seconds: float = 5.0) -> Process:
        async def logged() -> None:
            self.result = await main()

        process = Process(self.host, "broker", logged)
        self.machine.run(self.machine.now + seconds)
        if process.failure is not None:
            raise process.failure
        return process


async def _replies(cleaner: CleaningProcess) -> list[Reply]:
    return [reply async for reply in cleaner.run(JOB)]


def _clean_twice() -> tuple[list[Reply], bool, bool, str]:
    """Return the replies of two cleanings, whether one child did both, whether it is gone at the
    end, and the digest.
    """
    room = Room()

    async def main() -> tuple[list[Reply], bool, bool]:
        cleaner = CleaningProcess()
        replies = await _replies(cleaner)
        first = cleaner.pid
        replies += await _replies(cleaner)
        same = first is not None and first == cleaner.pid
        await cleaner.end()
        return replies, same, cleaner.pid is None and not room.host.processes[0].children

    with installed(room.machine):
        room.run(main)
    return *room.result, room.machine.trace.digest()


def test_a_child_does_one_job_after_the_other_and_ends_when_it_is_let_go() -> None:
    replies, same, gone, digest = apart(_clean_twice)
    assert [type(reply) for reply in replies] == [CleaningFailed, CleaningFailed]
    assert all(reply.may_pass for reply in replies if isinstance(reply, CleaningFailed))
    assert same
    assert gone
    assert apart(_clean_twice)[-1] == digest


def _kill_at_work(by_parent: bool) -> tuple[str, float]:
    room = Room()

    async def main() -> tuple[str, float]:
        cleaner = CleaningProcess()
        began = room.machine.now
        try:
            await _replies(cleaner)
        except CleaningProcessDied as died:
            return str(died), room.machine.now - began
        return "", 0.0

    def kill() -> None:
        (child,) = room.host.processes[0].children
        if by_parent:
            room.host.processes[0].kill()
        else:
            child.kill()

    with installed(room.machine):
        room.machine.after(0.02, kill)
        process = room.run(main)
        if by_parent:
            return ("alive" if process.alive or room.host.processes else "both gone"), 0.0
    return room.result  # type: ignore[no-any-return]


def test_a_parent_hears_at_once_that_its_child_was_killed() -> None:
    said, seconds = apart(lambda: _kill_at_work(by_parent=False))
    assert said == "it ended with status -9"
    assert seconds < 0.03


def test_a_child_dies_with_its_parent() -> None:
    assert apart(lambda: _kill_at_work(by_parent=True))[0] == "both gone"


def _fold(arguments: tuple[str, ...], *, kill: bool) -> tuple[int, bool]:
    """Return the child's status, and whether a second kill fails."""
    room = Room()

    async def main() -> tuple[int, bool]:
        child = await asyncio.create_subprocess_exec(*FOLD, *arguments)
        assert child.returncode is None
        if kill:
            child.kill()
        status = await child.wait()
        assert child.returncode == status
        with pytest.raises(ProcessLookupError):
            child.kill()
        return status, True

    with installed(room.machine):
        room.run(main)
    return room.result  # type: ignore[no-any-return]


def test_the_status_tells_how_it_ended() -> None:
    nothing_there = (
        "/simulated/alpha/q",
        "1",
        "ottla.metadata_quorum.state.controller:Controller",
        "5",
        "",
        "0",
    )
    assert apart(lambda: _fold(nothing_there, kill=False)) == (1, True)
    assert apart(lambda: _fold(nothing_there, kill=True)) == (-9, True)

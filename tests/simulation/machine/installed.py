"""The installation of the machine in place of Python's system interface, for the duration of a run.

The replaced names are those through which processes, and asyncio, reach the operating system. Modules that have
imported such a name themselves (`from time import perf_counter`) are patched, too.
"""

from __future__ import annotations

import concurrent.futures
import concurrent.futures.thread
import functools
import gc
import os
import queue
import random
import resource
import select
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

import pysyncobj.syncobj

from ottla.network import garbage_collection

from . import children, files, sockets
from .descriptors import VirtualPoll
from .machine import Machine
from .process import Process
from .threads import (
    ProcessKilled,
    VirtualLock,
    VirtualPool,
    VirtualQueue,
    VirtualRLock,
    is_thread_alive,
    join_thread,
    start_thread,
)

_BOUND_IN = frozenset(
    {
        "asyncio",
        "asyncio_dgram",
        "concurrent",
        "logging",
        "ottla",
        "pathlib",
        "random",
        "selectors",
        "shutil",
        "uuid",
    }
)


class Replacement(NamedTuple):
    """A name and its replacement during a run."""

    owner: Any
    name: str
    value: Any


def _time(machine: Machine) -> Iterator[Replacement]:
    def monotonic() -> float:
        return machine.running.process.host.monotonic_s() if machine.running else machine.now

    def monotonic_ns() -> int:
        return int(monotonic() * 1e9)

    def wall() -> float:
        return machine.running.process.host.wall_s() if machine.running else machine.now

    def wall_ns() -> int:
        return int(wall() * 1e9)

    def sleep(seconds: float) -> None:
        thread = machine.running
        if thread is None:
            raise ProcessKilled
        until = machine.now + seconds
        while machine.now < until:
            thread.block(until)

    yield Replacement(time, "monotonic", monotonic)
    yield Replacement(time, "monotonic_ns", monotonic_ns)
    yield Replacement(time, "perf_counter", monotonic)
    yield Replacement(time, "perf_counter_ns", monotonic_ns)
    yield Replacement(time, "time", wall)
    yield Replacement(time, "time_ns", wall_ns)
    yield Replacement(time, "sleep", sleep)
    yield Replacement(pysyncobj.syncobj, "monotonicTime", monotonic)


def _chance(machine: Machine) -> Iterator[Replacement]:
    yield Replacement(os, "urandom", machine.random.randbytes)
    yield Replacement(random, "_urandom", machine.random.randbytes)


def _threads(machine: Machine) -> Iterator[Replacement]:
    lock, reentrant, pool = (
        partial(VirtualLock, machine),
        partial(VirtualRLock, machine),
        partial(VirtualPool, machine),
    )
    yield Replacement(threading, "Lock", lock)
    yield Replacement(threading, "_allocate_lock", lock)
    yield Replacement(threading, "RLock", reentrant)
    yield Replacement(threading.Thread, "start", _method(partial(start_thread, machine)))
    yield Replacement(threading.Thread, "join", _method(partial(join_thread, machine)))
    yield Replacement(threading.Thread, "is_alive", is_thread_alive)
    yield Replacement(concurrent.futures, "ThreadPoolExecutor", pool)
    yield Replacement(concurrent.futures.thread, "ThreadPoolExecutor", pool)
    yield Replacement(queue, "SimpleQueue", partial(VirtualQueue, machine))
    yield Replacement(select, "poll", partial(VirtualPoll, machine))


def _method(function: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return function(self, *args, **kwargs)

    return method


def _processes(machine: Machine) -> Iterator[Replacement]:
    def own() -> Process:
        if machine.running is None:
            raise ProcessKilled
        return machine.running.process

    def getpid() -> int:
        return own().number

    def getppid() -> int:
        return own().parent_number

    def kill(number: int, signal_number: int) -> None:
        process = own()
        if number != process.number:
            raise ProcessLookupError(number)
        process.signal(signal_number)

    def exit_process(status: int = 0) -> None:
        thread = machine.running
        if thread is None:
            raise ProcessKilled
        thread.process.give_up()
        thread.block()  # for ever: no code of a dead process continues, not even a `finally`

    def without_limit(_: int) -> tuple[int, int]:
        return resource.RLIM_INFINITY, resource.RLIM_INFINITY

    yield Replacement(resource, "getrlimit", without_limit)  # Numbers of virtual descriptors are large.
    yield Replacement(os, "getpid", getpid)
    yield Replacement(os, "getppid", getppid)
    yield Replacement(os, "kill", kill)
    yield Replacement(os, "_exit", exit_process)


def untouched_collector(*, freezes: bool) -> nullcontext[None]:
    """Replace `only_new_garbage_collected`: the collector belongs to the real process.

    A process that dies while it opens logs never leaves the original, so the thresholds would stay for later tests.
    """
    return nullcontext()


def _collector() -> Iterator[Replacement]:
    yield Replacement(garbage_collection, "only_new_garbage_collected", untouched_collector)


@contextmanager
def installed(machine: Machine) -> Iterator[None]:
    """Run the block on the machine. Afterwards the process is best thrown away: see `run.py`."""
    replacements = [
        *_time(machine),
        *_chance(machine),
        *_threads(machine),
        *_processes(machine),
        *_collector(),
        *(Replacement(*replacement) for replacement in files.replacements(machine)),
        *(Replacement(*replacement) for replacement in sockets.replacements(machine)),
        *(Replacement(*replacement) for replacement in children.replacements(machine)),
    ]
    before: list[Replacement] = []
    for owner, name, value in replacements:
        original = getattr(owner, name)
        places = [(owner, name)]
        if isinstance(owner, ModuleType):
            places += [place for place in bound_names()[id(original)] if place != (owner, name)]
        for place, bound in places:
            before.append(Replacement(place, bound, original))
            setattr(place, bound, value)
    random.seed(machine.random.getrandbits(64))
    gc.disable()
    try:
        yield
    finally:
        for owner, name, value in reversed(before):
            setattr(owner, name, value)
        gc.enable()


@functools.cache
def bound_names() -> dict[int, list[tuple[ModuleType, str]]]:
    """Return the bindings in modules that run on the machine, by the bound object's id.

    The search is slow, so its result is cached.
    """
    found: dict[int, list[tuple[ModuleType, str]]] = defaultdict(list)
    for module_name, module in list(sys.modules.items()):
        if module is not None and module_name.partition(".")[0] in _BOUND_IN:
            for name, value in vars(module).items():
                found[id(value)].append((module, name))
    return found

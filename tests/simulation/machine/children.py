"""Child processes: a process that is started with `asyncio.create_subprocess_exec` becomes another process of the host.

A child has one thread, which runs the module's function; its standard input and output are pipes to its parent. It ends
with its parent, like a child that sets a parent-death signal.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any, cast

from greenlet import GreenletExit

from ottla.dataplane.log.compaction import worker
from ottla.metadata_quorum.raft import fold

from .machine import Machine
from .process import Process
from .threads import ProcessKilled, Thread

_START_S = (0.03, 0.15)
"""Range of seconds that an interpreter takes to start."""
_SIGKILL = 9


class _Input:
    """The child's standard input."""

    def __init__(self, machine: Machine) -> None:
        self._machine, self._data, self._ended = machine, bytearray(), False
        self._reader: Thread | None = None

    def feed(self, data: bytes, *, ended: bool = False) -> None:
        self._data += data
        self._ended |= ended
        if self._reader is not None:
            self._reader.wake()

    def readline(self, limit: int = -1) -> bytes:
        """Read a line; blocks the virtual thread until there is a line, or the end."""
        while True:
            size = self._data.find(b"\n") + 1 or (len(self._data) if self._ended else 0)
            if 0 <= limit <= len(self._data):  # More than is taken of one line.
                size = min(size or limit, limit)
            if size or self._ended:
                line = bytes(self._data[:size])
                del self._data[:size]
                return line
            self._reader = _running(self._machine)
            self._reader.block()
            self._reader = None


class _Output:
    """The child's standard output; flushed data is on its way to the parent."""

    def __init__(self, feed: Callable[[bytes], None]) -> None:
        self._feed = feed
        self._buffer = bytearray()

    def write(self, data: bytes) -> int:
        self._buffer += data
        return len(data)

    def flush(self) -> None:
        data = bytes(self._buffer)
        self._buffer.clear()
        self._feed(data)


def _clean(arguments: Sequence[str], jobs: IO[bytes], replies: IO[bytes]) -> None:
    try:
        worker.serve(jobs, replies, int(arguments[0]))
    except worker.Orphaned:
        return


def _fold(arguments: Sequence[str], _jobs: IO[bytes], _replies: IO[bytes]) -> None:
    fold.fold_folder(arguments)


Program = Callable[[Sequence[str], IO[bytes], IO[bytes]], None]
PROGRAMS: dict[str, Program] = {worker.__name__: _clean, fold.__name__: _fold}
"""Modules that `python -m` may run, each a function of arguments, standard input and standard output."""


class ChildProcess(Process):
    """A child process. `ended` is called once with its return code, after any kind of end."""

    def __init__(
        self, parent: Process, name: str, work: Callable[[], None], ended: Callable[[int], None]
    ) -> None:
        super().__init__(parent.host, f"{parent.name}/{name}", None)
        self.parent_number = parent.number
        self._parent = parent
        self._work = work
        self._returned: int | None = None
        self._tell_ended = ended
        parent.children.append(self)
        self.spawn_thread(self._run, "main")

    def _run(self) -> None:
        thread, machine = _running(self.machine), self.machine
        begins = machine.now + machine.random.uniform(*_START_S)
        while machine.now < begins:
            thread.block(begins)
        try:
            self._work()
            self._returned = 0
        except (GreenletExit, ProcessKilled):
            raise
        except Exception as error:
            self._returned, self.failure = 1, error
            machine.trace.remark(machine.now, self.name, "".join(traceback.format_exception(error)))
        self._ended()

    def _release(self, silently: bool) -> None:
        super()._release(silently)
        if self._parent.alive:
            self._parent.children.remove(self)
        self._tell_ended(-_SIGKILL if self._returned is None else self._returned)


class _Pipe:
    """The parent's end of the child's standard input; written data arrives at once."""

    def __init__(self, child: VirtualChild, input_: _Input) -> None:
        self._child = child
        self._input = input_

    def write(self, data: bytes) -> None:
        self._input.feed(bytes(data))

    async def drain(self) -> None:
        if not self._child.process.alive:
            raise ConnectionResetError("the child has ended")
        await asyncio.sleep(0)

    def close(self) -> None:
        self._input.feed(b"", ended=True)


class VirtualChild:
    """The used part of `asyncio.subprocess.Process`, for the parent."""

    def __init__(
        self, parent: Process, program: Program, arguments: Sequence[str], line_bytes_max: int
    ) -> None:
        self.returncode: int | None = None
        self._gone = asyncio.Event()
        jobs = _Input(parent.machine)
        self.stdin = _Pipe(self, jobs)
        self.stdout = asyncio.StreamReader(limit=line_bytes_max)
        replies = _Output(lambda data: parent.call(lambda: self.stdout.feed_data(data)))
        self.process = ChildProcess(
            parent,
            program.__name__.strip("_"),
            lambda: program(arguments, cast(IO[bytes], jobs), cast(IO[bytes], replies)),
            lambda code: parent.call(lambda: self._ended(code)),
        )
        self.pid = self.process.number

    def kill(self) -> None:
        if self.returncode is not None:
            raise ProcessLookupError(self.pid)
        self.process.kill()

    async def wait(self) -> int:
        await self._gone.wait()
        assert self.returncode is not None
        return self.returncode

    def _ended(self, code: int) -> None:
        self.returncode = code
        self.stdout.feed_eof()
        self._gone.set()


def _running(machine: Machine) -> Thread:
    """Return the thread that runs this code."""
    if machine.running is None:
        raise ProcessKilled
    return machine.running


def replacements(machine: Machine) -> Iterator[tuple[Any, str, Any]]:
    """Yield the replacements of the functions that start processes; see `installed.py`."""

    async def create_subprocess_exec(
        *argv: str, stdin: int | None = None, stdout: int | None = None, limit: int = 1 << 16
    ) -> VirtualChild:
        # Pipes exist in any case; callers that have not requested pipes do not use them.
        _, option, module, *arguments = argv
        if option != "-m" or module not in PROGRAMS or machine.running is None:
            raise FileNotFoundError(f"no process runs {argv}")
        return VirtualChild(machine.running.process, PROGRAMS[module], arguments, limit)

    yield asyncio, "create_subprocess_exec", create_subprocess_exec

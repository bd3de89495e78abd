"""Virtual threads and their synchronisation: the replacements of `threading` and of thread pools."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, Any

from greenlet import GreenletExit, greenlet

from .machine import Machine, Scheduled

if TYPE_CHECKING:
    from .process import Process

_POOL_THREADS = 8


class ProcessKilled(BaseException):
    """An end of the running code's process. Only finalizers of collected objects see this exception."""


class Thread:
    """A thread of a process. It runs until it blocks, and continues when it is woken or its deadline passes."""

    def __init__(self, process: Process, work: Callable[[], object], name: str) -> None:
        self.process = process
        self.machine: Machine = process.machine
        self.name = name
        self.greenlet = greenlet(self._run)
        self.loop: asyncio.AbstractEventLoop | None = None
        self.asyncgen_hooks: Any = sys.get_asyncgen_hooks()
        self.ended = False
        self._work = work
        self._blocked = True
        self._woken = False
        self._alarm: Scheduled | None = None
        self._joining: list[Thread] = []
        process.threads.append(self)
        self.machine.after(self.machine.wake_latency(), self._resume)

    def block(self, deadline: float | None = None) -> bool:
        """Let others run until `wake` or the deadline; return whether it was woken. Called by this thread."""
        machine = self.machine
        if machine.running is not self:
            raise ProcessKilled
        self._woken = False
        self._blocked = True
        if deadline is not None:
            self._alarm = machine.at(deadline, self._resume)
        machine.switch_away()
        return self._woken

    def wake(self) -> None:
        """Continue soon; any thread may call this."""
        if not self._blocked or self._woken or self.ended:
            return
        self._woken = True
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self.machine.after(self.machine.wake_latency(), self._resume)

    def join(self, waiting: Thread, deadline: float | None) -> None:
        """Join this thread; `waiting` is the running thread."""
        if not self.ended:
            self._joining.append(waiting)
        while not self.ended and (deadline is None or self.machine.now < deadline):
            waiting.block(deadline)

    def _resume(self) -> None:
        process = self.process
        if not process.alive or self.ended:
            return
        if process.paused:
            process.held_back.append(self._resume)
            return
        self._alarm = None
        self._blocked = False
        self.machine.switch_to(self)

    def _run(self) -> None:
        try:
            self._work()
        except (GreenletExit, ProcessKilled):
            pass
        except BaseException as error:
            self.process.thread_failed(self, error)
        finally:
            self.ended = True
            if self in self.process.threads:
                self.process.threads.remove(self)
            for waiting in self._joining:
                waiting.wake()


class VirtualLock:
    """`threading.Lock`."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._held = False
        self._waiting: deque[Thread] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        deadline = None if timeout < 0 else self._machine.now + timeout
        while self._held:
            thread = self._machine.running
            if not blocking or (deadline is not None and self._machine.now >= deadline):
                return False
            if thread is None:
                raise ProcessKilled
            self._waiting.append(thread)
            thread.block(deadline)
            if thread in self._waiting:
                self._waiting.remove(thread)
        self._held = True
        return True

    def release(self) -> None:
        if not self._held:
            raise RuntimeError("release unlocked lock")
        self._held = False
        if self._waiting:
            self._waiting.popleft().wake()

    def locked(self) -> bool:
        return self._held

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class VirtualRLock:
    """The replacement of `threading.RLock`, with the methods that `threading.Condition` needs."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._lock = VirtualLock(machine)
        self._owner: Thread | None = None
        self._count = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if self._count and self._owner is self._machine.running:
            self._count += 1
            return True
        if not self._lock.acquire(blocking, timeout):
            return False
        self._owner, self._count = self._machine.running, 1
        return True

    def release(self) -> None:
        if not self._is_owned():
            raise RuntimeError("cannot release un-acquired lock")
        self._count -= 1
        if not self._count:
            self._owner = None
            self._lock.release()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def _is_owned(self) -> bool:
        return bool(self._count) and self._owner is self._machine.running

    def _release_save(self) -> int:
        count, self._count, self._owner = self._count, 0, None
        self._lock.release()
        return count

    def _acquire_restore(self, count: int) -> None:
        self._lock.acquire()
        self._owner, self._count = self._machine.running, count


class VirtualQueue:
    """The replacement of `queue.SimpleQueue` for a single consumer."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._items: deque[Any] = deque()
        self._waiting: Thread | None = None

    def put(self, item: Any) -> None:
        self._items.append(item)
        if self._waiting is not None:
            self._waiting.wake()

    def get(self) -> Any:
        thread = self._machine.running
        if thread is None:
            raise ProcessKilled
        while not self._items:
            self._waiting = thread
            thread.block()
        self._waiting = None
        return self._items.popleft()


class VirtualPool(Executor):
    """The replacement of `concurrent.futures.ThreadPoolExecutor`; threads are made on demand."""

    def __init__(
        self,
        machine: Machine,
        max_workers: int | None = None,
        thread_name_prefix: str = "pool",
        initializer: Callable[..., object] | None = None,
        initargs: Iterable[Any] = (),
    ) -> None:
        assert initializer is None
        self._machine = machine
        self._size = max_workers or _POOL_THREADS
        self._name = thread_name_prefix
        self._work: deque[tuple[Future[Any], Callable[[], object]]] = deque()
        self._threads: list[Thread] = []
        self._idle: list[Thread] = []
        self._closed = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        running = self._machine.running
        if running is None:
            raise ProcessKilled
        future: Future[Any] = Future()
        self._work.append((future, lambda: fn(*args, **kwargs)))
        if self._idle:
            self._idle.pop().wake()
        elif len(self._threads) < self._size:
            self._threads.append(running.process.spawn_thread(self._serve, self._name))
        return future

    def map(
        self,
        fn: Callable[..., Any],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
    ) -> Iterator[Any]:
        futures = [self.submit(fn, *arguments) for arguments in zip(*iterables, strict=False)]
        return iter([future.result(timeout) for future in futures])

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._closed = True
        if cancel_futures:
            while self._work:
                self._work.popleft()[0].cancel()
        for thread in self._idle:
            thread.wake()
        self._idle.clear()
        running = self._machine.running
        if wait and running is not None:
            for thread in list(self._threads):
                thread.join(running, None)

    def _serve(self) -> None:
        thread = self._machine.running
        assert thread is not None
        while True:
            while self._work:
                future, work = self._work.popleft()
                if not future.set_running_or_notify_cancel():
                    continue
                try:
                    result = work()
                except (GreenletExit, ProcessKilled):
                    raise
                except BaseException as error:
                    future.set_exception(error)
                else:
                    future.set_result(result)
            if self._closed:
                return
            self._idle.append(thread)
            thread.block()
            if thread in self._idle:
                self._idle.remove(thread)


def start_thread(machine: Machine, thread: threading.Thread) -> None:
    """Replace `Thread.start`."""
    running = machine.running
    assert running is not None
    thread._virtual = running.process.spawn_thread(thread.run, thread.name)  # type: ignore[attr-defined]


def join_thread(machine: Machine, thread: threading.Thread, timeout: float | None = None) -> None:
    """Replace `Thread.join`."""
    running = machine.running
    virtual: Thread | None = getattr(thread, "_virtual", None)
    if virtual is None or running is None:
        raise RuntimeError("cannot join thread before it is started")
    virtual.join(running, None if timeout is None else machine.now + timeout)


def is_thread_alive(thread: threading.Thread) -> bool:
    """Replace `Thread.is_alive`."""
    virtual: Thread | None = getattr(thread, "_virtual", None)
    return virtual is not None and not virtual.ended

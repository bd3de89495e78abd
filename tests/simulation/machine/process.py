"""A process: its threads, its descriptors, and its kinds of end."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Coroutine
from typing import Any

from .descriptors import Descriptor
from .host import Host
from .loop import VirtualLoop
from .threads import Thread


class Process:
    """A process on a host. `main` runs on an event loop in it; when `main` returns, the process ends."""

    def __init__(self, host: Host, name: str, main: Callable[[], Coroutine[Any, Any, object]] | None) -> None:
        self.host = host
        self.machine = host.machine
        self.name = name
        self.number = self.machine.process_number()
        self.alive = True
        self.paused = False
        self.told_to_stop = False
        self.threads: list[Thread] = []
        self.descriptors: dict[int, Descriptor] = {}
        # : number of the parent process, or 0; a child ends with its parent
        self.parent_number = 0
        self.children: list[Process] = []
        # : called on the process's loop at SIGTERM
        self.on_signal: Callable[[], object] | None = None
        #: called once it has ended by itself
        self.on_end: Callable[[Process], None] | None = None
        #: turns that became due while it was paused
        self.held_back: list[Callable[[], None]] = []
        #: what ended its main, if that was not a return
        self.failure: BaseException | None = None
        self.loop: asyncio.SelectorEventLoop | None = None
        host.processes.append(self)
        self._note("starts")
        if main is not None:
            self.spawn_thread(lambda: self._run_loop(main), "main")

    def spawn_thread(self, work: Callable[[], object], name: str) -> Thread:
        return Thread(self, work, name)

    def kill(self, *, silently: bool = False) -> None:
        """Kill by SIGKILL, after which no code of the process runs.

        The kernel closes its connections, unless `silently` says that the kernel is gone, too.
        """
        if not self.alive:
            return
        self._note("is killed")
        self.alive = False
        for child in self.children:
            child.kill(silently=silently)
        self._release(silently)
        # The threads' objects stay alive: no `finally` of a dead process may run.
        self.machine.graveyard.extend(self.threads)

    def signal(self, number: int) -> None:
        """Send SIGTERM or SIGINT: the registered handler runs on the event loop; without a handler the process dies."""
        self._note(f"gets signal {number}")
        self.told_to_stop = True
        if self.on_signal is None:
            self.kill()
        else:
            self.call(self.on_signal)

    def give_up(self) -> None:
        """End the process by `os._exit` in one of its threads."""
        self._note("gives up")
        self.kill()
        if self.on_end is not None:
            self.on_end(self)

    def pause(self) -> None:
        """Pause by SIGSTOP."""
        if self.alive and not self.paused:
            self._note("is paused")
            self.paused = True

    def resume(self) -> None:
        """Resume by SIGCONT."""
        if self.paused:
            self._note("goes on")
            self.paused = False
            held_back, self.held_back = self.held_back, []
            for turn in held_back:
                self.machine.after(self.machine.wake_latency(), turn)

    def call(self, callback: Callable[[], object]) -> None:
        """Schedule a callback on the process's event loop, from outside."""
        loop = self.loop
        if self.alive and loop is not None:
            loop.call_soon_threadsafe(callback)

    def thread_failed(self, thread: Thread, error: BaseException) -> None:
        """Handle an exception that ended a thread: in the main thread it ends the process, in another it is a failure
        of the run.
        """
        if thread.name != "main":
            self.machine.failures.append(error)

    def _run_loop(self, main: Callable[[], Coroutine[Any, Any, object]]) -> None:
        self.loop = loop = VirtualLoop(self.host)
        loop.set_exception_handler(self._unhandled)
        asyncio._set_running_loop(None)
        try:
            loop.run_until_complete(main())
        except Exception as error:
            self.failure = error
            trail = "".join(traceback.format_exception(error))
            self.machine.trace.remark(self.machine.now, self.name, f"ended by {trail}")
        self._ended()

    def _ended(self) -> None:
        self._note(f"ends: {self.failure!r}" if self.failure else "ends")
        self.alive = False
        for child in self.children:
            child.kill()
        self._release(silently=False)
        self.machine.graveyard.extend(self.threads)
        if self.on_end is not None:
            self.on_end(self)

    def _release(self, silently: bool) -> None:
        self.host.processes.remove(self)
        for descriptor in list(self.descriptors.values()):
            descriptor.abandon(silently)

    def _unhandled(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Record an unhandled exception, which is always a fault of the product."""
        error = context.get("exception")
        message = f"{self.name}: {context.get('message')}: {error!r}"
        if error is not None:
            message += "\n" + "".join(traceback.format_exception(error))
        self.machine.failures.append(AssertionError(message))

    def _note(self, event: str) -> None:
        self.machine.trace.note(self.machine.now, self.name, event)

"""The machine room: virtual time, hosts, processes and their threads, all derived from one seed.

The processes of the cluster run here unmodified. What they ask of Python's system interface (files, sockets, clocks,
threads, randomness) is answered by this machine instead; `installed.py` puts the answers in place. Every thread
is a greenlet that runs until it waits for something; the machine decides who runs next, and when it is.
"""

from __future__ import annotations

import heapq
import sys
from asyncio import _get_running_loop, _set_running_loop
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from greenlet import greenlet

from .trace import Trace

if TYPE_CHECKING:
    from .descriptors import Descriptor
    from .disk import VirtualDisk
    from .host import Host
    from .network import Network
    from .threads import Thread

FIRST_DESCRIPTOR = 1 << 20
"""First number of virtual descriptors. No number is used twice, so a dead process's late close affects no other
descriptor."""

START_S = 1000.0
_WAKE_LATENCY_S = (5e-6, 60e-6)


class Scheduled:
    """An action at a future time, unless it is cancelled."""

    __slots__ = ("action",)

    def __init__(self, action: Callable[[], None]) -> None:
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        self.action = None


class Machine:
    """Time, chance, and everything that runs.

    `now` is in seconds and moves only from one event to the next. All randomness of a run comes from `random`, all
    of its order from one queue: the same seed gives the same run.
    """

    def __init__(self, seed: int, trace: Trace) -> None:
        self.random = Random(seed)
        self.now = START_S
        self.trace = trace
        self.events = 0
        self.hosts: dict[str, Host] = {}
        # : set by the builder of the room
        self.network: Network
        #: by the names of the hosts
        self.disks: dict[str, VirtualDisk] = {}
        self.descriptors: dict[int, Descriptor] = {}
        #: the thread on whose behalf code runs; None when it is the machine itself
        self.running: Thread | None = None
        #: called after every turn of a thread, with that thread
        self.observers: list[Callable[[Thread], None]] = []
        # : errors inside processes, which the player of the run raises
        self.failures: list[BaseException] = []
        #: threads of dead processes: kept, so that nothing of theirs runs when it is collected
        self.graveyard: list[Thread] = []
        self._queue: list[tuple[float, int, Scheduled]] = []
        self._sequence = 0
        self._last_descriptor = FIRST_DESCRIPTOR
        self._last_process = 0
        self._hub: greenlet | None = None

    # ------------------------------------------------------------ time

    def at(self, when: float, action: Callable[[], None]) -> Scheduled:
        """Schedule an action, after all actions that are due earlier or were scheduled earlier for the same time."""
        scheduled = Scheduled(action)
        self._sequence += 1
        heapq.heappush(self._queue, (max(when, self.now), self._sequence, scheduled))
        return scheduled

    def after(self, seconds: float, action: Callable[[], None]) -> Scheduled:
        return self.at(self.now + seconds, action)

    def run(self, until: float, condition: Callable[[], bool] | None = None) -> bool:
        """Let time pass until `until`, or until `condition` holds; return whether it holds. The condition is checked
        now and then.

        Raises the first unexpected failure of a process.
        """
        assert self.running is None
        self._hub = greenlet.getcurrent()
        queue, failures = self._queue, self.failures
        while queue and queue[0][0] <= until:
            self.now, _, scheduled = heapq.heappop(queue)
            if scheduled.action is None:
                continue
            self.events += 1
            scheduled.action()
            if failures:
                raise failures[0]
            if condition is not None and self.events % 64 == 0 and condition():
                return True
        self.now = max(self.now, until)
        return condition is not None and condition()

    # ------------------------------------------------------------ threads

    def wake_latency(self) -> float:
        """Return the seconds that a runnable thread waits for a processor."""
        return self.random.uniform(*_WAKE_LATENCY_S)

    def switch_to(self, thread: Thread) -> None:
        """Run a thread until it waits or ends, with its own state of asyncio and the interpreter."""
        self.running = thread
        # Where control goes when it ends: without this, to the thread that happened to make it.
        thread.greenlet.parent = self._hub
        _set_running_loop(thread.loop)
        sys.set_asyncgen_hooks(*thread.asyncgen_hooks)
        thread.greenlet.switch()
        thread.loop = _get_running_loop()
        thread.asyncgen_hooks = sys.get_asyncgen_hooks()
        _set_running_loop(None)
        self.running = None
        for observer in self.observers:
            observer(thread)

    def switch_away(self) -> None:
        """Switch from a waiting thread to the machine."""
        assert self._hub is not None
        self._hub.switch()

    # ------------------------------------------------------------ numbers

    def descriptor_number(self) -> int:
        self._last_descriptor += 1
        return self._last_descriptor

    def process_number(self) -> int:
        self._last_process += 1
        return self._last_process

    def descriptor(self, number: int) -> Descriptor | None:
        """Return an open descriptor; None if it was closed, or its process is gone."""
        return self.descriptors.get(number)

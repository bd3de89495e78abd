"""Open descriptors of a process, and waiting until one is ready: selectors and `select.poll`."""

from __future__ import annotations

import errno
import os
import select
import selectors
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .machine import Machine
    from .process import Process
    from .threads import Thread


class Descriptor:
    """An open object of a process: a file, a socket, an end of a pipe."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.machine = process.machine
        self.number = self.machine.descriptor_number()
        self.machine.descriptors[self.number] = self
        process.descriptors[self.number] = self
        self._watchers: list[Watcher] = []

    def readable(self) -> bool:
        """Return whether reading would not block, because of data, the end, an error or a connection to accept."""
        return True

    def writable(self) -> bool:
        """Return whether writing would not block."""
        return True

    def changed(self) -> None:
        """Notify all watchers that the descriptor may have become ready."""
        for watcher in self._watchers:
            watcher.notify(self)

    def watch(self, watcher: Watcher) -> None:
        if watcher not in self._watchers:
            self._watchers.append(watcher)

    def unwatch(self, watcher: Watcher) -> None:
        if watcher in self._watchers:
            self._watchers.remove(watcher)

    def abandon(self, silently: bool) -> None:
        """Close the descriptor of a dead process; with `silently` the host is dead, too, so no peer is notified."""
        self.close()

    def close(self) -> None:
        """Close the descriptor; subclasses release their resources first."""
        self.machine.descriptors.pop(self.number, None)
        self.process.descriptors.pop(self.number, None)


class Watcher:
    """A thread that waits for descriptors."""

    def __init__(self) -> None:
        self._waiting: Thread | None = None

    @property
    def waits(self) -> bool:
        return self._waiting is not None

    def notify(self, descriptor: Descriptor) -> None:
        """Note that `descriptor` may have become ready."""
        if self._waiting is not None:
            self._waiting.wake()

    def wait(self, thread: Thread, timeout_s: float | None) -> None:
        """Wait until notified or until the timeout; may return early."""
        self._waiting = thread
        thread.block(None if timeout_s is None else thread.machine.now + timeout_s)
        self._waiting = None


_TURNS_AT_ONCE_MAX = 4
_TURN_S = 50e-6
"""Seconds by which time advances after a number of turns, so that a busy loop lets others run."""


class _SelectorWatcher(Watcher):
    """A watcher that remembers the changed descriptors, since few of a selector's many descriptors are ready."""

    def __init__(self) -> None:
        super().__init__()
        self.changed: set[int] = set()

    def notify(self, descriptor: Descriptor) -> None:
        self.changed.add(descriptor.number)
        super().notify(descriptor)


class VirtualSelector(selectors._BaseSelectorImpl):  # type: ignore[misc, name-defined]
    """The selector of a stock asyncio event loop."""

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self._machine = machine
        self._watcher = _SelectorWatcher()
        #: in which order they were registered
        self._places: dict[int, int] = {}
        self._registered = 0
        self._turns_at_once = 0

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key: selectors.SelectorKey = super().register(fileobj, events, data)
        descriptor = self._machine.descriptor(key.fd)
        if descriptor is None:
            super().unregister(fileobj)
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        descriptor.watch(self._watcher)
        self._registered += 1
        self._places[key.fd] = self._registered
        self._watcher.changed.add(key.fd)
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        key: selectors.SelectorKey = super().unregister(fileobj)
        if (descriptor := self._machine.descriptor(key.fd)) is not None:
            descriptor.unwatch(self._watcher)
        del self._places[key.fd]
        self._watcher.changed.discard(key.fd)
        return key

    @property
    def waits(self) -> bool:
        """True if the loop is idle between two events."""
        return self._watcher.waits

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        thread = self._machine.running
        assert thread is not None
        ready = self._ready()
        if ready or (timeout is not None and timeout <= 0):
            self._turns_at_once += 1
            if self._turns_at_once < _TURNS_AT_ONCE_MAX:
                return ready
            thread.block(self._machine.now + _TURN_S)
        else:
            self._watcher.wait(thread, timeout)
        self._turns_at_once = 0
        return self._ready()

    def _ready(self) -> list[tuple[selectors.SelectorKey, int]]:
        ready: list[tuple[selectors.SelectorKey, int]] = []
        changed = self._watcher.changed
        if not changed:
            return ready
        keys, descriptors = self._fd_to_key, self._machine.descriptors
        for number in sorted(changed, key=self._places.__getitem__) if len(changed) > 1 else tuple(changed):
            key = keys[number]
            descriptor = descriptors.get(number)
            events = 0
            if descriptor is not None:
                if key.events & selectors.EVENT_READ and descriptor.readable():
                    events |= selectors.EVENT_READ
                if key.events & selectors.EVENT_WRITE and descriptor.writable():
                    events |= selectors.EVENT_WRITE
            if events:
                ready.append((key, events))
            else:
                changed.discard(number)
        return ready


class VirtualPoll:
    """`select.poll`."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._watcher = Watcher()
        self._masks: dict[int, int] = {}

    def register(self, fd: Any, eventmask: int = select.POLLIN | select.POLLOUT) -> None:
        number = fd if isinstance(fd, int) else fd.fileno()
        self._masks[number] = eventmask
        if (descriptor := self._machine.descriptor(number)) is not None:
            descriptor.watch(self._watcher)

    def unregister(self, fd: Any) -> None:
        number = fd if isinstance(fd, int) else fd.fileno()
        del self._masks[number]
        if (descriptor := self._machine.descriptor(number)) is not None:
            descriptor.unwatch(self._watcher)

    def poll(self, timeout: float | None = None) -> list[tuple[int, int]]:
        """Poll with `timeout` in milliseconds; without it wait for ever."""
        thread = self._machine.running
        assert thread is not None
        if ready := list(self._ready()):
            thread.block(self._machine.now + _TURN_S)
            return ready
        self._watcher.wait(thread, None if timeout is None or timeout < 0 else timeout / 1000)
        return list(self._ready())

    def _ready(self) -> Iterable[tuple[int, int]]:
        for number, mask in self._masks.items():
            descriptor = self._machine.descriptor(number)
            if descriptor is None:
                yield number, select.POLLNVAL
                continue
            events = 0
            if mask & select.POLLIN and descriptor.readable():
                events |= select.POLLIN
            if mask & select.POLLOUT and descriptor.writable():
                events |= select.POLLOUT
            if events:
                yield number, events

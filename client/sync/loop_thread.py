"""The event loop of all synchronous clients of a process: a single one, on a daemon thread, begun with the first
client.

Invariant: no thread waits for a loop that cannot answer. Calls on the loop's thread, calls of clients left behind by a
fork, and calls while the interpreter is ending are therefore refused.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import selectors
from collections.abc import Callable, Coroutine
from contextlib import suppress
from threading import Event, Lock, Thread, get_ident
from typing import Any, Generic, TypeVar

from ..arguments import timeout
from ..failures import ClientClosed, MadeBeforeFork, RequestTimedOut

EXIT_GRACE_S = 5.0
"""The time for which clients that were not stopped may delay the end of the interpreter."""
T = TypeVar("T")
Stop = Callable[[], Coroutine[Any, Any, object]]
logger = logging.getLogger(__name__)


class _Call(Generic[T]):
    """A coroutine that a thread waits for. All methods but `wait` belong to the loop, or to the time after it ended."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work = work
        self._ended = Event()
        self._task: asyncio.Task[T] | None = None

    def begin(self) -> None:
        self._task = asyncio.ensure_future(self._work)
        self._task.add_done_callback(lambda task: self._ended.set())

    def cancel(self) -> None:
        if (
            self._task is None
        ):  # the interrupt came first: a task cancelled before its first step ends at once
            self.begin()
        self.task.cancel()

    def wait(self, timeout_s: float | None) -> bool:
        return self._ended.wait(timeout_s)

    @property
    def task(self) -> asyncio.Task[T]:
        assert self._task is not None
        return self._task


class LoopThread:
    """An event loop, and the thread that runs it.

    The loop is asyncio's own and not uvloop's: a forked child must release the inherited loop without touching the
    parent's sockets, and for that it must know them.
    """

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._loop = asyncio.SelectorEventLoop(self._selector)
        self._left_behind = False
        self._ended = False
        self._open: dict[object, Stop] = {}
        self._finishing: set[asyncio.Future[object]] = set()
        self._thread = Thread(target=self._turn, name="ottla-sync", daemon=True)
        self._thread.start()
        atexit.register(self._end)

    def check(self) -> None:
        """Raise the reason that forbids a call: MadeBeforeFork, ClientClosed, or RuntimeError on the loop's thread."""
        if self._left_behind:
            raise MadeBeforeFork(
                "this client was made before the process was forked, and its connections are the parent's: make "
                "another one in the child"
            )
        if self._ended:
            raise ClientClosed("the interpreter is ending")
        if get_ident() == self._thread.ident:
            raise RuntimeError(
                "a synchronous client was called on the thread that does its work, as by the callback of a future, and "
                "would wait for itself: call it from another thread"
            )

    @property
    def left_behind(self) -> bool:
        """True in the child of a fork, where the loop is the parent's."""
        return self._left_behind

    def run(
        self,
        work: Coroutine[Any, Any, T],
        *,
        timeout_ms: float | None = None,
        unseen: Callable[[T], None] | None = None,
    ) -> T:
        """Run `work` on the loop, and wait for it; return its result, or raise its exception.

        After `timeout_ms`, or when the wait is interrupted (KeyboardInterrupt), the work is cancelled and its end
        awaited. If it completed all the same, a timeout has no effect; after an interrupt `unseen` is called on the
        loop with the lost result. Raises RequestTimedOut, the errors of `check`, and ValueError for a negative timeout.
        """
        try:
            self.check()
            timeout(timeout_ms)
        except BaseException:
            work.close()
            raise
        call = _Call(work)
        try:
            self.soon(call.begin)
            in_time = call.wait(None if timeout_ms is None else timeout_ms / 1000)
        except BaseException:  # KeyboardInterrupt, or an exception of another signal's handler
            self._cancel(call)
            if unseen is not None and not call.task.cancelled() and call.task.exception() is None:
                self.soon(unseen, call.task.result())
            raise
        if not in_time:
            self._cancel(call)
            if call.task.cancelled():
                raise RequestTimedOut(f"the call took longer than {timeout_ms:g} ms of timeout_ms")
        return call.task.result()

    def finish(self, work: Coroutine[Any, Any, object]) -> None:
        """Run `work` that ends something, such as the stop of a client.

        On the loop's thread it continues in the background. In a forked child, or while the interpreter is ending, it
        is dropped.
        """
        if self._left_behind or self._ended:
            work.close()
        elif get_ident() == self._thread.ident:
            task = asyncio.ensure_future(work)
            self._finishing.add(task)
            task.add_done_callback(self._finishing.discard)
        else:
            self.run(work)

    def soon(self, callback: Callable[..., object], *args: object) -> None:
        """Call `callback` on the loop, after earlier calls; return at once."""
        self._loop.call_soon_threadsafe(callback, *args)

    def opened(self, client: object, stop: Stop) -> None:
        """Note an open client, with the function that stops it at the end of the interpreter if `closed` is not called
        before."""
        self._open[client] = stop

    def closed(self, client: object) -> None:
        """Note that the client was stopped, so that the end of the interpreter does not stop it."""
        self._open.pop(client, None)

    def leave_behind(self) -> None:
        """Release the loop in the child of a fork: it does not run here, and its sockets are the parent's.

        Each socket is replaced by the null device, so that no finalizer can write to the parent's connections, and they
        close when the parent closes them. The selector's epoll object is shared with the parent, and closed here.
        """
        self._left_behind = True
        nowhere = os.open(os.devnull, os.O_RDWR)
        for key in list(self._selector.get_map().values()):
            os.dup2(nowhere, key.fd, inheritable=False)
        os.close(nowhere)
        self._selector.close()

    def _turn(self) -> None:
        while not self._ended:
            # asyncio propagates these two. The call that raised one raises it in its caller; other calls go on.
            with suppress(SystemExit, KeyboardInterrupt):
                self._loop.run_forever()

    def _cancel(self, call: _Call[Any]) -> None:
        self.soon(call.cancel)
        call.wait(None)

    def _end(self) -> None:
        if self._left_behind:
            return
        if self._open:
            self._stop_what_is_open()
        self._ended = True
        self.soon(self._loop.stop)
        self._thread.join(EXIT_GRACE_S)

    def _stop_what_is_open(self) -> None:
        async def stop_all() -> list[object]:
            stops = [stop() for stop in list(self._open.values())]
            return list(await asyncio.gather(*stops, return_exceptions=True))

        try:
            ends = self.run(stop_all(), timeout_ms=EXIT_GRACE_S * 1000)
        except RequestTimedOut:
            ends = [f"that took longer than {EXIT_GRACE_S:g} s"]
        for failure in filter(None, ends):
            logger.warning(
                "clients were left to the end of the interpreter; records may not be sent: %s", failure
            )


_shared: LoopThread | None = None
_lock = Lock()
_left_behind: list[LoopThread] = []
"""Loops of parents, kept alive: their finalizers would otherwise run at an arbitrary time."""


def shared_loop() -> LoopThread:
    """Return the event loop of all synchronous clients of this process, and its thread."""
    global _shared
    with _lock:
        if _shared is None:
            _shared = LoopThread()
        return _shared


def _after_fork() -> None:
    global _shared, _lock
    _lock = Lock()  # the thread that may have held it does not exist in the child
    if _shared is not None:
        _shared.leave_behind()
        _left_behind.append(_shared)
        _shared = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

"""The event loop of all synchronous clients of a process: one, on a daemon thread, begun when the first is made.

What must hold: no thread waits for a loop that cannot answer. So calls made on the loop's own thread are refused, and
those of clients that a fork has left behind, and those made once the interpreter is ending.
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
"""How long clients that were not stopped may hold up the end of the interpreter."""
T = TypeVar("T")
Stop = Callable[[], Coroutine[Any, Any, object]]
logger = logging.getLogger(__name__)


class _Call(Generic[T]):
    """A coroutine that a thread waits for. All but `wait` belongs to the loop, or comes after it."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work = work
        self._ended = Event()
        self._task: asyncio.Task[T] | None = None

    def begin(self) -> None:
        self._task = asyncio.ensure_future(self._work)
        self._task.add_done_callback(lambda task: self._ended.set())

    def cancel(self) -> None:
        if self._task is None:  # the interrupt came first: cancelled before its first step it does nothing
            self.begin()
        self.task.cancel()

    def wait(self, timeout_s: float | None) -> bool:
        return self._ended.wait(timeout_s)

    @property
    def task(self) -> asyncio.Task[T]:
        assert self._task is not None
        return self._task


class LoopThread:
    """An event loop, and the thread that turns it.

    It is asyncio's own and not uvloop's: a child after a fork has to let go of what it inherits without touching the
    parent's sockets, and that takes knowing them.
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
        """Raises what stands in the way of a call: MadeBeforeFork, ClientClosed, RuntimeError on the loop's thread."""
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
        """Whether this is the child of a fork, and the loop the parent's."""
        return self._left_behind

    def run(
        self,
        work: Coroutine[Any, Any, T],
        *,
        timeout_ms: float | None = None,
        unseen: Callable[[T], None] | None = None,
    ) -> T:
        """Run `work` on the loop and wait for it; raises what it raises.

        After `timeout_ms`, or when the wait is interrupted (KeyboardInterrupt), it is cancelled and its end awaited.
        If it was done all the same, a timeout does not matter any more, and after an interrupt `unseen` is told on the
        loop what nobody has seen. Raises RequestTimedOut, what `check` raises, and ValueError for less than no time.
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
        except BaseException:  # KeyboardInterrupt, or what another signal's handler raises
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
        """`run` for what ends something: on the loop's thread it goes on by itself, a child of a fork leaves it be."""
        if self._left_behind or self._ended:
            work.close()
        elif get_ident() == self._thread.ident:
            task = asyncio.ensure_future(work)
            self._finishing.add(task)
            task.add_done_callback(self._finishing.discard)
        else:
            self.run(work)

    def soon(self, callback: Callable[..., object], *args: object) -> None:
        """Call this on the loop, after what was asked for before; returns at once."""
        self._loop.call_soon_threadsafe(callback, *args)

    def opened(self, client: object, stop: Stop) -> None:
        """What to do at the end of the interpreter if `closed` is not called before."""
        self._open[client] = stop

    def closed(self, client: object) -> None:
        """The client was stopped."""
        self._open.pop(client, None)

    def leave_behind(self) -> None:
        """This is the child of a fork: the loop does not turn here, and its sockets are the parent's.

        In their place comes what nobody reads, so that nothing a finalizer does or writes reaches the parent's
        connections, and they close when the parent closes them. The selector's epoll is shared, and let go of.
        """
        self._left_behind = True
        nowhere = os.open(os.devnull, os.O_RDWR)
        for key in list(self._selector.get_map().values()):
            os.dup2(nowhere, key.fd, inheritable=False)
        os.close(nowhere)
        self._selector.close()

    def _turn(self) -> None:
        while not self._ended:
            # asyncio lets these two through. The call they come from raises them where it was made; others go on.
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
"""Loops of parents. They are kept: what goes away unfinished would have its say at a time that nobody chose."""


def shared_loop() -> LoopThread:
    """The loop of this process."""
    global _shared
    with _lock:
        if _shared is None:
            _shared = LoopThread()
        return _shared


def _after_fork() -> None:
    global _shared, _lock
    _lock = Lock()  # the thread that may have held it is not here
    if _shared is not None:
        _shared.leave_behind()
        _left_behind.append(_shared)
        _shared = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

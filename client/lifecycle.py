"""The lifetime of a client: from its start to its stop, on the event loop on which it was started.

On another loop, its calls would wait for events that only the first loop delivers, and concurrent changes from two
loops would corrupt its state unnoticed.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from .failures import ClientClosed


class UsedWithAwait:
    """The base of clients for asyncio. A plain `with` or `for` raises TypeError with the right form.

    Type checkers do not see the refusals, so to them a client is no plain context manager.
    """

    __slots__ = ()

    if not TYPE_CHECKING:

        def __enter__(self):
            raise TypeError(self._right_form("with"))

        def __exit__(self, *exc):  # Python looks for it before it calls `__enter__`.
            raise TypeError(self._right_form("with"))

    def _right_form(self, keyword: str) -> str:
        name = type(self).__name__
        # A program may have a class of its own, which ottla.sync lacks.
        public = next(cls.__name__ for cls in type(self).__mro__ if cls.__module__.startswith("ottla."))
        return (
            f"{name} is a client for asyncio: use `async {keyword}`, or ottla.sync.{public} without asyncio"
        )


class ReadWithAwait(UsedWithAwait):
    """The base of clients for asyncio that `async for` reads."""

    __slots__ = ()

    if not TYPE_CHECKING:

        def __iter__(self):
            raise TypeError(self._right_form("for"))


class Lifecycle:
    """The state of one client's lifetime. `kind`: the client's name in messages, such as "producer"."""

    def __init__(self, kind: str) -> None:
        self.stopping = False
        """True once the client starts no new work."""
        self._stopped = False
        self._kind = kind
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Bind the client to the running loop. Raises ClientClosed after `stop`, RuntimeError for a second start."""
        if self.stopping:
            raise ClientClosed(f"the {self._kind} was stopped: make another one")
        if self._loop is not None:
            raise RuntimeError(
                f"the {self._kind} was started before; a block starts it too, and needs no start() of its own"
            )
        self._loop = asyncio.get_running_loop()

    def stop(self) -> bool:
        """Begin to stop; return False if that was begun before. Raises RuntimeError on another loop."""
        self.check_loop()
        if self.stopping:
            return False
        self.stopping = True
        return True

    def stopped(self) -> None:
        """Note that the client has stopped: refuse all further calls."""
        self.stopping = self._stopped = True

    def check(self, *, or_stopping: bool = False) -> None:
        """Check that the client may be called, from any thread.

        `or_stopping`: allow the call while the client is stopping. Raises ClientClosed after `stop`, RuntimeError
        before `start`.
        """
        if self._stopped or (self.stopping and not or_stopping):
            raise ClientClosed(f"the {self._kind} was stopped")
        if self._loop is None:
            raise RuntimeError(
                f"the {self._kind} was not started: use it as a block (`async with`; `with` in ottla.sync), or await "
                "its start() before"
            )

    def check_here(self, *, or_stopping: bool = False) -> None:
        """Check that the client may be called, and that it runs on the current loop. `or_stopping`: allow the call
        while the client is stopping. Raises ClientClosed after `stop`; RuntimeError before `start`, and on another
        loop."""
        self.check(or_stopping=or_stopping)
        self.check_loop()

    def check_loop(self) -> None:
        """Check that the client runs on this loop, if it was started. Raises RuntimeError on another loop."""
        # Not get_running_loop: it raises if there is no loop, and takes longer.
        if self._loop is None or asyncio._get_running_loop() is self._loop:
            return
        gone = ", which is closed by now with all that was under way" if self._loop.is_closed() else ""
        raise RuntimeError(
            f"the {self._kind} was started on another event loop{gone}: a client is used, and stopped, on the loop on "
            "which it was started; those of ottla.sync may be used anywhere"
        )

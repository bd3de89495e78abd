"""When a client may be used: from its start to its stop, on the event loop on which it was started.

On another loop its calls would wait for what only the first one brings, and what the two do at a time would go wrong in
silence.
"""

from __future__ import annotations

import asyncio

from .failures import ClientClosed


class Lifecycle:
    """Of one client. `kind`: how messages call it, as "producer"."""

    def __init__(self, kind: str) -> None:
        self.stopping = False
        """Nothing new is begun."""
        self._stopped = False
        self._kind = kind
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """It lives on this loop from now on. Raises ClientClosed after `stop`, RuntimeError for a second start."""
        if self.stopping:
            raise ClientClosed(f"the {self._kind} was stopped: make another one")
        if self._loop is not None:
            raise RuntimeError(
                f"the {self._kind} was started before; a block starts it too, and needs no start() of its own"
            )
        self._loop = asyncio.get_running_loop()

    def stop(self) -> bool:
        """Begin to stop; False if that has begun before. Raises RuntimeError on another loop."""
        self.check_loop()
        if self.stopping:
            return False
        self.stopping = True
        return True

    def stopped(self) -> None:
        """Nothing can be asked any more."""
        self.stopping = self._stopped = True

    def check(self, *, or_stopping: bool = False) -> None:
        """For every thread. `or_stopping`: what is still allowed then. Raises ClientClosed after `stop`, RuntimeError
        before `start`."""
        if self._stopped or (self.stopping and not or_stopping):
            raise ClientClosed(f"the {self._kind} was stopped")
        if self._loop is None:
            raise RuntimeError(
                f"the {self._kind} was not started: use it as a block (`async with`; `with` in ottla.sync), or call "
                "its start() before"
            )

    def check_here(self, *, or_stopping: bool = False) -> None:
        """`check`, and that this is its loop."""
        self.check(or_stopping=or_stopping)
        self.check_loop()

    def check_loop(self) -> None:
        """That this is its loop, if it has one already. Raises RuntimeError."""
        # Not get_running_loop, which raises where there is none, and takes longer.
        if self._loop is None or asyncio._get_running_loop() is self._loop:
            return
        gone = ", which is closed by now with all that was under way" if self._loop.is_closed() else ""
        raise RuntimeError(
            f"the {self._kind} was started on another event loop{gone}: a client is used, and stopped, on the loop on "
            "which it was started; those of ottla.sync may be used anywhere"
        )

"""The event loop of a virtual process: asyncio's own, with a shorter way through each turn.

A run consists of turns of loops. What asyncio does there for debugging, for the system's clock and for being closed
by another thread costs time in every one; the order in which callbacks run is the stock loop's.
"""

from __future__ import annotations

import asyncio
import heapq
from asyncio.events import Handle, TimerHandle
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any

from .descriptors import VirtualSelector
from .host import Host


class _Soon(Handle):
    """A callback for the next turn."""

    __slots__ = ()

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: VirtualLoop,
        context: Context | None,
    ) -> None:
        self._context = copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None


class VirtualLoop(asyncio.SelectorEventLoop):
    """Runs on the time of its host."""

    _ready: Any
    _scheduled: list[TimerHandle]
    _selector: VirtualSelector
    _stopping: bool
    _clock_resolution: float

    def __init__(self, host: Host) -> None:
        super().__init__(VirtualSelector(host.machine))
        self.time = host.monotonic_s  # type: ignore[method-assign]

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        handle = _Soon(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def _run_once(self) -> None:
        ready, scheduled = self._ready, self._scheduled
        while scheduled and scheduled[0]._cancelled:
            heapq.heappop(scheduled)._scheduled = False  # type: ignore[attr-defined]
        timeout: float | None = None
        if ready or self._stopping:
            timeout = 0
        elif scheduled:
            timeout = max(0, scheduled[0]._when - self.time())  # type: ignore[attr-defined]
        if events := self._selector.select(timeout):
            self._process_events(events)  # type: ignore[attr-defined]
        end = self.time() + self._clock_resolution
        while scheduled and scheduled[0]._when < end:  # type: ignore[attr-defined]
            handle = heapq.heappop(scheduled)
            handle._scheduled = False  # type: ignore[attr-defined]
            ready.append(handle)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                try:
                    handle._context.run(handle._callback, *handle._args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    self.call_exception_handler(
                        {"message": f"exception in {handle!r}", "exception": error, "handle": handle}
                    )

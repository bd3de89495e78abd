"""How a synchronous client stands before the asynchronous one that does its work."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeVar

from .loop_thread import LoopThread


class Startable(Protocol):
    """What all asynchronous clients have."""

    async def start(self) -> None:
        """Reach the cluster."""

    async def stop(self) -> None:
        """Close."""


P = ParamSpec("P")
T = TypeVar("T")


class Facade:
    """Starts, stops and calls an asynchronous client on the loop that it lives on.

    Each subclass keeps its client, and the loop, under names of its own: it knows what kind of client it has.
    """

    def __init__(self, client: Startable, loop: LoopThread) -> None:
        self._client = client
        self._thread = loop

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self, *, timeout_ms: float | None = None) -> None:
        """Reach the cluster. Raises KafkaError."""
        self._thread.run(self._client.start(), timeout_ms=timeout_ms, unseen=self._never_started)
        self._thread.opened(self, self._stop)

    def stop(self, *, timeout_ms: float | None = None) -> None:
        """Finish and close; idempotent. In a child after a fork, where the client is the parent's, nothing happens."""
        if self._thread.left_behind:
            return
        try:
            self._thread.run(self._stop(), timeout_ms=timeout_ms)
        finally:
            self._thread.closed(self)

    def _never_started(self, _: object) -> None:
        """An interrupt came just when it had started: whoever asked for it has no client to stop."""
        self._thread.finish(self._stop())

    async def _stop(self) -> None:
        await self._client.stop()


def blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Facade, P], T]:
    """The same method for a facade: it returns when that of the client is done."""

    @functools.wraps(method)
    def call(self: Facade, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._thread.run(method(self._client, *args, **kwargs))

    return call


def on_loop(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Facade, P], T]:
    """The same method for a facade, of those that wait for nothing."""

    @functools.wraps(method)
    def call(self: Facade, /, *args: P.args, **kwargs: P.kwargs) -> T:
        async def now() -> T:
            return method(self._client, *args, **kwargs)

        return self._thread.run(now())

    return call

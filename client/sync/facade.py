"""The base of synchronous clients, which delegate to an asynchronous client."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeVar

from .loop_thread import LoopThread


class Startable(Protocol):
    """The methods that all asynchronous clients have in common, `start` and `stop`."""

    async def start(self) -> None:
        """Reach the cluster."""

    async def stop(self) -> None:
        """Close."""


P = ParamSpec("P")
T = TypeVar("T")


class Facade:
    """A synchronous client that starts, stops and calls an asynchronous client on its loop.

    Each subclass keeps its client, and the loop, in typed attributes as well.
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
        """Start the client, which reaches the cluster. Raises KafkaError."""
        self._thread.run(self._client.start(), timeout_ms=timeout_ms, unseen=self._never_started)
        self._thread.opened(self, self._stop)

    def stop(self, *, timeout_ms: float | None = None) -> None:
        """Finish the client's pending work and close its connections; idempotent.

        It does nothing in a forked child, where the client belongs to the parent.
        """
        if self._thread.left_behind:
            return
        try:
            self._thread.run(self._stop(), timeout_ms=timeout_ms)
        finally:
            self._thread.closed(self)

    def _never_started(self, _: object) -> None:
        """Stop a client that had started when an interrupt came, since its caller cannot."""
        self._thread.finish(self._stop())

    async def _stop(self) -> None:
        await self._client.stop()


def blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Facade, P], T]:
    """Return the facade's version of an asynchronous method; it returns when that is done."""

    @functools.wraps(method)
    def call(self: Facade, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._thread.run(method(self._client, *args, **kwargs))

    return call


def on_loop(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Facade, P], T]:
    """Return the facade's version of a method that does not wait: it runs on the clients' loop."""

    @functools.wraps(method)
    def call(self: Facade, /, *args: P.args, **kwargs: P.kwargs) -> T:
        async def now() -> T:
            return method(self._client, *args, **kwargs)

        return self._thread.run(now())

    return call

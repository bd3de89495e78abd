"""How a synchronous client stands before the asynchronous one that does its work."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar

from .loop_thread import shared_loop


class Startable(Protocol):
    """What all asynchronous clients have."""

    async def start(self) -> None:
        """Reach the cluster."""

    async def stop(self) -> None:
        """Close."""


P = ParamSpec("P")
T = TypeVar("T")
ClientT_co = TypeVar("ClientT_co", bound=Startable, covariant=True)
OfT = TypeVar("OfT")


class Facade(Generic[ClientT_co]):
    """An asynchronous client, and the loop that it lives on."""

    def __init__(self, client: ClientT_co) -> None:
        self._client = client
        self._loop = shared_loop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self, *, timeout_ms: float | None = None) -> None:
        """Reach the cluster. Raises KafkaError."""
        self._loop.run(self._client.start(), timeout_ms=timeout_ms)
        self._loop.opened(self, self._stop)

    def stop(self, *, timeout_ms: float | None = None) -> None:
        """Finish and close; idempotent. In a child after a fork, where the client is the parent's, nothing happens."""
        if self._loop.left_behind:
            return
        try:
            self._loop.run(self._stop(), timeout_ms=timeout_ms)
        finally:
            self._loop.closed(self)

    async def _stop(self) -> None:
        await self._client.stop()


def blocking(
    method: Callable[Concatenate[OfT, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Facade[Any], P], T]:
    """The same method for a facade: it returns when that of the client is done."""

    @functools.wraps(method)
    def call(self: Facade[Any], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._loop.run(method(self._client, *args, **kwargs))

    return call


def on_loop(method: Callable[Concatenate[OfT, P], T]) -> Callable[Concatenate[Facade[Any], P], T]:
    """The same method for a facade, of those that wait for nothing."""

    @functools.wraps(method)
    def call(self: Facade[Any], /, *args: P.args, **kwargs: P.kwargs) -> T:
        async def now() -> T:
            return method(self._client, *args, **kwargs)

        return self._loop.run(now())

    return call

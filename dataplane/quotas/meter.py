"""Measurement of requests' processor time for the quota request_percentage. 100 percent is one busy event loop."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, NoReturn, TypeVar

from .rate_quota import RateQuota

_T = TypeVar("_T")


class RequestMeter:
    """A stopwatch for the time in which the broker works on one request."""

    __slots__ = ("_client_id", "_clock", "_quota", "_spent_s", "_started_s", "_user")

    def __init__(
        self, quota: RateQuota, user: str, client_id: str | None, started_s: float, clock: Callable[[], float]
    ) -> None:
        """`clock` returns seconds; `started_s` is the clock's time at which work on the request began."""
        self._quota = quota
        self._user = user
        self._client_id = client_id
        self._clock = clock
        self._started_s: float | None = started_s
        self._spent_s = 0.0

    def resume(self) -> None:
        """Start the stopwatch, since work on the request goes on."""
        self._started_s = self._clock()

    def pause(self) -> None:
        """Stop the stopwatch, since the request waits."""
        if self._started_s is not None:
            self._spent_s += self._clock() - self._started_s
            self._started_s = None

    def spend(self, seconds: float) -> None:
        """Add processor seconds that a thread has worked on the request."""
        self._spent_s += seconds

    def charge(self) -> int:
        """Charge the client for the request's time. Returns the milliseconds that the client has to wait."""
        self.pause()
        spent_s, self._spent_s = self._spent_s, 0.0
        return self._quota.charge(self._user, self._client_id, 100 * spent_s, self._clock() * 1000)


class Stepwise(Coroutine[Any, Any, _T]):
    """A coroutine that handles a request. The time of each of its steps is charged to the meter, and the time of its
    waits is not.
    """

    def __init__(self, inner: Coroutine[Any, Any, _T], meter: RequestMeter) -> None:
        self._inner = inner
        self._meter = meter

    def send(self, value: Any) -> Any:
        """Run the coroutine up to its next wait."""
        self._meter.resume()
        try:
            return self._inner.send(value)
        finally:
            self._meter.pause()

    def throw(self, *error: Any) -> Any:
        """Raise an exception in the coroutine, and run it up to its next wait."""
        self._meter.resume()
        try:
            return self._inner.throw(*error)
        finally:
            self._meter.pause()

    def close(self) -> None:
        """End the coroutine."""
        self._inner.close()

    def __await__(self) -> NoReturn:
        raise TypeError("this is run as a task, not awaited")

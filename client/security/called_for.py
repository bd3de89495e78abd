"""Tokens and passwords that a program or an authorization server provides on request.

One call serves all connections that wait for a credential. A failed call is followed by a pause, which doubles up to
`PAUSE_S_MAX`. Logins in the pause use the last credential while it is valid.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from math import inf
from typing import Final, Generic, TypeVar

logger = logging.getLogger(__name__)

FRESH_PART: Final = 0.75
"""The part of a credential's life in which no other is requested. Logins are renewed after it, so each uses a new
one."""
WAIT_S: Final = 2.0
"""Time in seconds that a login waits for a new credential while the old one is still valid."""
PAUSE_S_MIN: Final = 0.5
PAUSE_S_MAX: Final = 10.0

ValueT = TypeVar("ValueT")


class CredentialsUnavailable(Exception):
    """An error: no credential was provided. The text holds no secret. `is_final` is True if another call would not
    help."""

    def __init__(self, message: str, *, is_final: bool = False) -> None:
        super().__init__(message)
        self.is_final = is_final


@dataclass(frozen=True, slots=True)
class Given(Generic[ValueT]):
    """A credential, and the time when it expires in seconds since 1970; None if that is unknown."""

    value: ValueT
    ends_s: float | None = None


@dataclass(frozen=True, slots=True)
class _Kept(Generic[ValueT]):
    value: ValueT
    fresh_until_s: float
    ends_s: float
    knows_end: bool


class CalledFor(Generic[ValueT]):
    """A credential that is requested when needed, kept while it is valid, and shared by all connections of a client on
    one event loop."""

    def __init__(
        self,
        what: str,
        call: Callable[[], Awaitable[Given[ValueT]]],
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`call` raises CredentialsUnavailable. `what` is the credential's name for the log."""
        self._what = what
        self._call = call
        self._clock = clock
        self._monotonic = monotonic
        self._kept: _Kept[ValueT] | None = None
        self._calling: asyncio.Task[ValueT] | None = None
        self._failure: CredentialsUnavailable | None = None
        self._failures = 0
        self._refusals = 0
        self._next_call_s = -inf  # monotonic time

    async def current(self) -> ValueT:
        """Return the credential for a login. Raises CredentialsUnavailable.

        A credential with a known expiry is kept for `FRESH_PART` of its life, and used until it expires while no other
        is available. A credential with unknown expiry is requested at each login; while calls fail, the last one is
        used.
        """
        kept, now = self._kept, self._clock()
        if kept is not None and now >= kept.ends_s:
            kept = self._kept = None
        if kept is None:
            return await self._called()
        if now < kept.fresh_until_s:
            return kept.value
        try:
            async with asyncio.timeout(min(WAIT_S, kept.ends_s - now) if kept.knows_end else None):
                return await self._called()
        except TimeoutError:
            return kept.value
        except CredentialsUnavailable as error:
            if error.is_final and not kept.knows_end:
                raise
            return kept.value

    def accepted(self, value: ValueT) -> None:
        """Note that a broker has accepted this credential at a login."""
        if self._kept is not None and self._kept.value == value:
            self._refusals = 0

    def refused(self, value: ValueT) -> CredentialsUnavailable | None:
        """Forget a credential that a broker has refused. Returns the error of the last call if that is why the
        credential was old."""
        kept = self._kept
        if kept is None or kept.value != value:
            return self._failure
        self._kept = None
        if self._failure is not None and not kept.knows_end:
            return self._failure
        self._refusals += 1
        # The next credential was refused as well: the brokers and the authorization server disagree.
        if self._refusals > 1:
            error = CredentialsUnavailable(f"brokers refuse each {self._what}", is_final=True)
            self._pause(error, self._refusals - 2)
        return None

    async def _called(self) -> ValueT:
        if self._calling is None:
            if self._failure is not None and self._monotonic() < self._next_call_s:
                raise CredentialsUnavailable(str(self._failure), is_final=self._failure.is_final)
            self._calling = asyncio.ensure_future(self._call_once())
            self._calling.add_done_callback(self._has_called)
        # A connection that stops waiting leaves the call to the other connections.
        return await asyncio.shield(self._calling)

    async def _call_once(self) -> ValueT:
        given = await self._call()
        now = self._clock()
        knows_end = given.ends_s is not None
        ends_s = inf if given.ends_s is None else float(given.ends_s)
        fresh_until_s = now + FRESH_PART * (ends_s - now) if knows_end else -inf
        self._kept = _Kept(given.value, fresh_until_s, ends_s, knows_end)
        return given.value

    def _has_called(self, calling: asyncio.Task[ValueT]) -> None:
        self._calling = None
        if calling.cancelled():
            return
        error = calling.exception()
        if error is None:
            self._failure, self._failures = None, 0
        elif isinstance(error, CredentialsUnavailable):
            self._pause(error, self._failures)
            self._failures += 1
            if self._kept is not None and self._failures == 1:
                left = f", {self._kept.ends_s - self._clock():.0f} s more" if self._kept.knows_end else ""
                logger.warning("no new %s, the last one is used%s: %s", self._what, left, error)

    def _pause(self, error: CredentialsUnavailable, former: int) -> None:
        """Make no call for a new credential for a while, after `former` failures in a row."""
        longest_s = min(PAUSE_S_MIN * 2 ** min(former, 10), PAUSE_S_MAX)
        self._next_call_s = self._monotonic() + random.uniform(0.5, 1.0) * longest_s
        self._failure = error

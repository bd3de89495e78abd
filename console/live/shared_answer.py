"""An answer that costs the cluster much, such as the lag of all groups: requested rarely, and shared by all pages."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

AnswerT = TypeVar("AnswerT")

AGE_S: Final = 4.0
"""Seconds for which an answer is used at least."""
CPU_SHARE: Final = 0.05
"""The most of a core that repeated requests take."""
KEPT_S: Final = 60.0
"""Seconds after the last use of an answer after which it is dropped from memory."""


class SharedAnswer(Generic[AnswerT]):
    """The newest answer to one request, shared by all pages.

    A page that needs the answer repeats the request after AGE_S seconds, or later: repeated requests take at most
    CPU_SHARE of a core.
    """

    def __init__(
        self,
        ask: Callable[[], Awaitable[AnswerT]],
        *,
        now: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.process_time,
    ) -> None:
        self._ask, self._now, self._cpu = ask, now, cpu
        self._answer: AnswerT | None = None
        self._fresh_until_s = -1.0
        self._is_expired = False
        self._asking: asyncio.Task[None] | None = None
        self._dropping: asyncio.TimerHandle | None = None

    async def get(self, *, patience_s: float) -> AnswerT | None:
        """Return the answer; an older one if the cluster needs more than `patience_s` seconds, or None without one.

        A later call then finds the answer. Raises the KafkaError of a request that failed.
        """
        self._keep()
        if self._answer is not None and self._now() < self._fresh_until_s:
            return self._answer
        if self._asking is None:
            self._asking = asyncio.create_task(self._renew(), name="shared answer of the console")
            self._asking.add_done_callback(self._end)
        asking = self._asking
        await asyncio.wait([asking], timeout=patience_s)
        if asking.done():
            asking.result()
        return self._answer

    def expire(self) -> None:
        """Let the next page repeat the request, since the answer has changed."""
        self._fresh_until_s = -1.0
        self._is_expired = True

    async def stop(self) -> None:
        """Stop asking, and drop the answer."""
        self._drop()
        if (asking := self._asking) is not None:
            asking.cancel()
            await asyncio.wait([asking])

    def _end(self, asking: asyncio.Task[None]) -> None:
        """Note the end of a request, and retrieve its error, which may have no page that waits for it."""
        self._asking = None
        if not asking.cancelled():
            asking.exception()

    async def _renew(self) -> None:
        began_s = self._cpu()
        self._is_expired = False
        self._answer = await self._ask()
        if self._is_expired:  # The answer changed while it was under way.
            return
        self._fresh_until_s = self._now() + max(AGE_S, (self._cpu() - began_s) / CPU_SHARE)

    def _keep(self) -> None:
        if self._dropping is not None:
            self._dropping.cancel()
        self._dropping = asyncio.get_running_loop().call_later(KEPT_S, self._drop)

    def _drop(self) -> None:
        self._answer = None
        if self._dropping is not None:
            self._dropping.cancel()
            self._dropping = None

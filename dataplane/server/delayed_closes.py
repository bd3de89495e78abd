"""Refused connections that are closed only after a delay, so that repeated attempts take time (KIP-306)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import random
from typing import Final

DELAYED_MAX: Final = 1000
"""The maximum number of delayed closes; further refused connections are closed at once."""
JITTER: Final = 0.2
"""The share by which a delay is randomly extended, so that clients refused together do not come back together."""


class DelayedCloses:
    """The refused connections that wait to be closed, each with its timer."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: dict[object, Callable[[], None]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def close_later(self, close: Callable[[], None], delay_ms: float) -> None:
        """Call `close()` after about `delay_ms`, or at the end of this turn of the event loop if too many connections
        wait already.
        """
        if len(self._waiting) >= DELAYED_MAX:
            self._loop.call_soon(close)
            return
        key = object()
        self._waiting[key] = close
        self._loop.call_later(delay_ms * (1 + JITTER * random()) / 1000, self._close, key)

    def close_all(self) -> None:
        """Close all waiting connections now, without the rest of their delay."""
        for key in list(self._waiting):
            self._close(key)

    def _close(self, key: object) -> None:
        close = self._waiting.pop(key, None)
        if close is not None:
            close()

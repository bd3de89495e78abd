"""Telling the quorum's leader how far this broker's image is: once for many pushes of records."""

import asyncio
from collections.abc import Callable

from ...protocol.cluster.image_delta import ImageDelta

AFTER_S = 0.02
"""Seconds after brokers or replicas changed: the leader waits for all to know before a broker may lead, or stop."""
OF_TRANSACTIONS_AFTER_S = 0.25
"""Seconds after anything else: what became of a transaction the leader is not told by this."""


class Echo:
    """Calls `tell` some time after the image moved; whatever moves it until then is told along."""

    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell = tell
        self._timer: asyncio.TimerHandle | None = None

    def image_moved(self, delta: ImageDelta) -> None:
        """To be called on the event loop."""
        loop = asyncio.get_running_loop()
        after_s = AFTER_S if delta.concerns_brokers else OF_TRANSACTIONS_AFTER_S
        if self._timer is not None:
            if self._timer.when() <= loop.time() + after_s:
                return
            self._timer.cancel()
        self._timer = loop.call_later(after_s, self._now)

    def stop(self) -> None:
        """Tell nothing more of what has moved until now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _now(self) -> None:
        self._timer = None
        self._tell()

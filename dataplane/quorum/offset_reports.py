"""Reports to the quorum's leader of the metadata offset that this broker's image has reached: one report for many
pushes of records."""

import asyncio
from collections.abc import Callable

from ...protocol.cluster.image_delta import ImageDelta

AFTER_S = 0.02
"""Seconds until the report after a change of brokers or replicas. A broker may lead or stop only when all brokers have
reported the change to the leader."""
OF_TRANSACTIONS_AFTER_S = 0.25
"""Seconds until the report after any other change. The leader does not depend on this report to learn about
transactions."""


class Echo:
    """A timer that reports the image's metadata offset, by a call of `tell`, a fraction of a second after the image
    changed.

    One report covers all changes until then.
    """

    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell = tell
        self._timer: asyncio.TimerHandle | None = None

    def image_moved(self, delta: ImageDelta) -> None:
        """Schedule a report of the image's offset, since the image changed by `delta`. To be called on the event
        loop."""
        loop = asyncio.get_running_loop()
        after_s = AFTER_S if delta.concerns_brokers else OF_TRANSACTIONS_AFTER_S
        if self._timer is not None:
            if self._timer.when() <= loop.time() + after_s:
                return
            self._timer.cancel()
        self._timer = loop.call_later(after_s, self._now)

    def stop(self) -> None:
        """Cancel the pending report of the image's offset."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _now(self) -> None:
        self._timer = None
        self._tell()
